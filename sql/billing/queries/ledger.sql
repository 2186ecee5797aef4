-- name: TakeHolds :one
select take_holds(
    @jobs::bytea[], @accounts::text[], @places::int[], @keys::text[], @key_places::int[], @models::text[],
    @micros::bigint[], @floors::bigint[], @raises::boolean[], @expiries::timestamptz[],
    @versions::text[], @inputs::bigint[], @outputs::bigint[], @cacheds::bigint[]
)::bigint[] as answers;

-- name: SettleJobs :one
select settle(
    @jobs::bytea[], @accounts::text[], @places::int[],
    @keys::text[], @models::text[], @regions::text[], @routes::text[],
    @outcomes::text[], @sources::text[], @workers::text[], @attempts::bigint[],
    @prompts::bigint[], @cacheds::bigint[], @completions::bigint[], @reasonings::bigint[],
    @versions::text[], @rate_inputs::bigint[], @rate_outputs::bigint[], @rate_cacheds::bigint[],
    @claims::bigint[], @charges::bigint[], @first_bytes::bigint[], @totals::bigint[], @ends::timestamptz[]
)::bigint[] as answers;

-- GetHold reads an open hold.
-- name: GetHold :one
select encode(job, 'hex') as job, account_id, key_id, model, micro, rate_version, rate_input, rate_output, rate_cached, expires_at
from holds where job = @job::bytea;

-- RenewHolds moves the end of holds that are open; it never comes earlier. It
-- waits for nobody: who settles waits for rows in another order, and a hold that
-- is being closed needs no new end.
-- name: RenewHolds :execrows
update holds h set expires_at = greatest(h.expires_at, @expires::timestamptz)
where h.job in (
    select o.job from holds o
    where o.job = any (select decode(unnest(@jobs::text[]), 'hex'))
    for update skip locked
);
-- ClaimExpiredHolds takes up holds that ran out and that nobody else took up
-- during the lease. The rows are not locked afterwards: settling them is a
-- no-op for whoever comes second.
-- name: ClaimExpiredHolds :many
update holds h set swept_at = @now::timestamptz
where h.job in (
    select e.job from holds e
    where e.expires_at < @now::timestamptz
      and (e.swept_at is null or e.swept_at < @lease_start::timestamptz)
    order by e.expires_at
    limit @batch
    for update skip locked
)
returning encode(h.job, 'hex') as job, h.account_id, h.key_id, h.model, h.micro,
    h.rate_version, h.rate_input, h.rate_output, h.rate_cached, h.expires_at;

-- CreateTransaction gives no row when the cause was booked before.
-- name: CreateTransaction :one
insert into transactions (kind, cause, note) values (@kind, @cause::text, @note)
on conflict (kind, cause) where cause is not null do nothing
returning id;

-- LockCustomer keeps an account from being closed until the transaction ends.
-- name: LockCustomer :one
select closed_at from accounts where id = @id and kind = 'customer' for share;

-- CreateEntryPair writes both sides in one statement.
-- name: CreateEntryPair :exec
insert into entries (transaction_id, account_id, amount_micro)
values (@transaction_id, @account_id, @amount_micro::bigint),
       (@transaction_id, @other_account_id, - @amount_micro::bigint);

-- name: GetEntry :one
select e.amount_micro from transactions t join entries e on e.transaction_id = t.id
where t.kind = @kind and t.cause = @cause::text and e.account_id = @account_id;

-- name: GetBalance :one
select balance_micro, held_micro, open_holds, concurrent_max from balances where account_id = @account_id;

-- name: CountJournal :one
select (select count(*) from entries)::bigint as entries,
       (select count(*) from settlements)::bigint as settlements,
       (select coalesce(sum(amount_micro), 0) from entries)::bigint as sum_micro,
       (select count(*) from holds)::bigint as holds;

-- name: ListWrongBalances :many
select b.account_id, b.balance_micro, coalesce(e.total, 0)::bigint as entries_micro
from balances b
left join (select account_id, sum(amount_micro) as total from entries group by account_id) e using (account_id)
where b.balance_micro <> coalesce(e.total, 0)
limit @page;

-- ListWrongTransactions finds transactions without entries or with a sum.
-- name: ListWrongTransactions :many
select t.id, t.kind, coalesce(t.cause, '')::text as cause, coalesce(sum(e.amount_micro), 0)::bigint as sum_micro, count(e.account_id) as lines
from transactions t left join entries e on e.transaction_id = t.id
group by t.id
having coalesce(sum(e.amount_micro), 0) <> 0 or count(e.account_id) < 2
limit @page;

-- ListWrongCharges finds accounts in charges whose entry is not what the
-- settlements of the transaction took.
-- name: ListWrongCharges :many
select coalesce(t.id, s.transaction_id)::bigint as transaction_id, coalesce(t.account_id, s.account_id, '')::text as account_id,
       coalesce(s.settled, 0)::bigint as settled_micro, coalesce(t.booked, 0)::bigint as booked_micro
from (
    select t.id, e.account_id, - e.amount_micro as booked
    from transactions t left join entries e on e.transaction_id = t.id and e.account_id <> 'revenue'
    where t.kind = 'charge'
) t
full join (
    select transaction_id, account_id, sum(charged_micro) as settled
    from settlements where transaction_id is not null group by 1, 2
) s on s.transaction_id = t.id and s.account_id = t.account_id
where s.settled is null or t.booked is distinct from s.settled
limit @page;

-- name: ListWrongHeld :many
select b.account_id, b.held_micro, coalesce(h.held, 0)::bigint as holds_micro,
       b.open_holds, coalesce(h.n, 0)::bigint as holds
from balances b
left join (select account_id, sum(micro) as held, count(*) as n from holds group by account_id) h using (account_id)
where b.held_micro <> coalesce(h.held, 0) or b.open_holds <> coalesce(h.n, 0)
limit @page;

-- name: ListWrongKeys :many
select k.id, k.held_micro, coalesce(h.held, 0)::bigint as holds_micro,
       k.spent_micro, coalesce(s.spent, 0)::bigint as settled_micro
from keys k
left join (select key_id, account_id, sum(micro) as held, count(*) as n from holds group by 1, 2) h
    on h.key_id = k.id and h.account_id = k.account_id
left join (select key_id, account_id, sum(charged_micro) as spent from settlements group by 1, 2) s
    on s.key_id = k.id and s.account_id = k.account_id
where k.held_micro <> coalesce(h.held, 0) or k.open_holds <> coalesce(h.n, 0)
   or k.spent_micro <> coalesce(s.spent, 0)
limit @page;

-- name: ListOverdueHolds :many
select encode(job, 'hex') as job, account_id, micro, expires_at from holds where expires_at < @before::timestamptz
order by expires_at limit @page;

-- ListBooked gives what was booked for jobs.
-- name: ListBooked :many
select encode(job, 'hex') as job, charged_micro from settlements
where job = any (select decode(unnest(@jobs::text[]), 'hex'));

-- ListHolding gives those of some accounts that have open holds.
-- name: ListHolding :many
select account_id from balances where account_id = any (@accounts::text[]) and open_holds > 0;

-- CountBookedByUsage counts what usage events of a time decided.
-- name: CountBookedByUsage :one
select count(*) from settlements
where source = 'usage' and ended_at between @first::timestamptz and @last::timestamptz;
