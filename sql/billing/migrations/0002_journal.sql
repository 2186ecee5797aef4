-- The journal: what moved money and between which accounts.
--
-- Nothing is booked twice. A charge is caused by the settlements that name its
-- transaction, and there is one settlement a job; the other kinds write their
-- cause down, where it is unique. Entries sum to zero within their transaction
-- and are written together with it; the trigger below checks that and moves the
-- balances, so that no statement anywhere can do one without the other. Nothing
-- here is ever changed: a correction is a new transaction.
--
-- Jobs that are settled together are one transaction, with one entry for each
-- account and one for the revenue: what each job cost of it is in the
-- settlements. An entry a job would say the same again, at the price of half the
-- work of a settlement.
--
-- Transactions are numbered: what is written last stands last in every index,
-- where adding costs least.

-- +goose Up

create table transactions (
    id         bigint generated always as identity primary key,
    kind       text not null,
    cause      text collate "C",
    note       text not null default '',
    created_at timestamptz not null default now(),
    -- The database transaction that wrote the row, and alone may add entries.
    made_in    xid8 not null default pg_current_xact_id(),
    constraint transaction_is_well_formed check (
        case kind when 'charge' then cause is null
                  when 'credit' then cause is not null
                  when 'refund' then cause is not null
                  when 'correction' then cause is not null
                  else false end
        and octet_length(note) <= 500 and (cause is null or octet_length(cause) <= 200))
);

create unique index transactions_by_cause on transactions (kind, cause) where cause is not null;

create table entries (
    transaction_id bigint not null,
    account_id     text collate "C" not null,
    amount_micro   bigint not null,
    constraint amount_is_not_zero check (amount_micro <> 0),
    primary key (transaction_id, account_id)
);

-- Foreign keys would look up one row at a time; the trigger asks the same
-- questions once per statement.
-- +goose StatementBegin
create function post_entries() returns trigger
    language plpgsql security definer set search_path from current as $$
declare
    v_transaction bigint;
    v_account     text;
begin
    select a.transaction_id into v_transaction
    from (select transaction_id, sum(amount_micro) as total from added group by transaction_id) a
    where a.total <> 0
       -- One row is asked for, because a join may be answered by reading all
       -- transactions there ever were.
       or (select t.made_in from transactions t where t.id = a.transaction_id) is distinct from pg_current_xact_id()
    limit 1;
    if found then
        raise exception 'entries of transaction % do not sum to zero, have no transaction, or come later than it', v_transaction
            using errcode = 'integrity_constraint_violation', constraint = 'entries_balance';
    end if;
    -- Callers that move several accounts hold their rows already, in order.
    with sums as (
        select account_id, sum(amount_micro)::bigint as amount from added group by account_id
    ), moved as (
        update balances b set balance_micro = b.balance_micro + s.amount
        from sums s where b.account_id = s.account_id
        returning b.account_id
    )
    select s.account_id into v_account
    from sums s
    where s.account_id not in (select m.account_id from moved m)
      and (select a.kind from accounts a where a.id = s.account_id) is distinct from 'system'
    limit 1;
    if found then
        raise exception 'account % does not exist', v_account
            using errcode = 'foreign_key_violation', constraint = 'entries_account';
    end if;
    return null;
end
$$;
-- +goose StatementEnd

create trigger entries_posted after insert on entries
    referencing new table as added
    for each statement execute function post_entries();

-- The ledger row of a request: how it ended, what it used, what it cost. Its
-- primary key decides which of two messages about one job counts. What
-- the rows of one transaction and account charged is that account's entry.
create table settlements (
    job             digest primary key,
    -- What moved the money; null when nothing was charged.
    transaction_id  bigint,
    account_id      text collate "C" not null,
    key_id          text collate "C" not null,
    model           text not null,
    region          text not null,
    route           text not null,
    outcome         text not null,
    -- Which message decided: the edge's usage event, a worker's report, or
    -- nobody's, when a hold ran out.
    source          text not null,
    worker          text not null,
    attempt         bigint not null,
    prompt_tokens   bigint not null,
    cached_tokens   bigint not null,
    completion_tokens bigint not null,
    reasoning_tokens  bigint, -- null: nobody counted them
    rate_version    text not null,
    rate_input      bigint not null,
    rate_output     bigint not null,
    rate_cached     bigint not null,
    -- What the message said, what was booked, and what could not be.
    claimed_micro   bigint not null,
    charged_micro   bigint not null,
    held_micro      bigint not null,
    shortfall_micro bigint not null,
    first_byte_ms   bigint not null,
    total_ms        bigint not null,
    ended_at        timestamptz not null,
    settled_at      timestamptz not null default now(),
    constraint words_are_known check (outcome in ('finished', 'left', 'failed', 'refused')
        and source in ('usage', 'report', 'sweep')),
    -- Nothing is negative, and cached tokens are prompt tokens.
    constraint counts_are_possible check (
        least(attempt, prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens,
              prompt_tokens - cached_tokens, rate_input, rate_output, rate_cached,
              claimed_micro, charged_micro, held_micro, shortfall_micro) >= 0),
    -- Never above what the caller was told; and what failed, or what nobody
    -- told of, is free.
    constraint charge_is_due check (charged_micro + shortfall_micro <= claimed_micro
        and (charged_micro > 0) = (transaction_id is not null)
        and (charged_micro = 0 or (outcome in ('finished', 'left') and source <> 'sweep')))
);

-- +goose StatementBegin
create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is append-only: % refused', tg_table_name, lower(tg_op)
        using errcode = 'insufficient_privilege';
end
$$;
-- +goose StatementEnd

create trigger entries_append_only before update or delete or truncate on entries
    for each statement execute function refuse_change();
create trigger transactions_append_only before update or delete or truncate on transactions
    for each statement execute function refuse_change();
create trigger settlements_append_only before update or delete or truncate on settlements
    for each statement execute function refuse_change();

-- Always: a session that plays replica does not get around them either.
alter table entries enable always trigger entries_posted;
alter table entries enable always trigger entries_append_only;
alter table transactions enable always trigger transactions_append_only;
alter table settlements enable always trigger settlements_append_only;
