-- The journal: what moved money and between which accounts.
--
-- A transaction has a cause, and its id is the cause's id: booking the same
-- cause twice is a conflict on the primary key, whoever tries. Its entries sum
-- to zero and are written by one statement; the trigger below checks that and
-- moves the balances, so that no statement anywhere can do one without the
-- other. Nothing here is ever changed: a correction is a new transaction.

-- +goose Up

create table transactions (
    -- A charge has the job's id, others "<kind>/<cause>".
    id         text collate "C" primary key,
    kind       text not null,
    note       text not null default '',
    created_at timestamptz not null default now(),
    constraint transaction_is_well_formed check (kind in ('charge', 'credit', 'refund', 'correction')
        and octet_length(id) <= 200 and octet_length(note) <= 500),
    -- The two never meet.
    constraint charge_is_a_job check ((kind = 'charge') = (octet_length(id) = 64 and strpos(id, '/') = 0))
);

create table entries (
    transaction_id text collate "C" not null,
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
    v_bad text;
begin
    select a.transaction_id into v_bad
    from (
        select transaction_id, sum(amount_micro) as total, count(*) as lines
        from added group by transaction_id
    ) a
    -- A count, because "not exists" under "or" may be answered by reading all
    -- transactions there ever were.
    where a.total <> 0
       or (select count(*) from transactions t where t.id = a.transaction_id) <> 1
       or a.lines <> (select count(*) from entries e where e.transaction_id = a.transaction_id)
    limit 1;
    if found then
        raise exception 'entries of transaction % do not sum to zero, have no transaction, or were written before', v_bad
            using errcode = 'integrity_constraint_violation', constraint = 'entries_balance';
    end if;
    select a.account_id into v_bad
    from (select distinct account_id from added) a
    where not exists (select from accounts c where c.id = a.account_id)
    limit 1;
    if found then
        raise exception 'account % does not exist', v_bad
            using errcode = 'foreign_key_violation', constraint = 'entries_account';
    end if;
    -- Callers that move several accounts hold their rows already, in order.
    update balances b set balance_micro = b.balance_micro + a.amount
    from (
        select account_id, sum(amount_micro)::bigint as amount
        from added group by account_id
    ) a
    where b.account_id = a.account_id;
    return null;
end
$$;
-- +goose StatementEnd

create trigger entries_posted after insert on entries
    referencing new table as added
    for each statement execute function post_entries();

-- The ledger row of a request: how it ended, what it used, what it cost. Its
-- primary key decides which of two messages about one job counts.
create table settlements (
    job             text collate "C" primary key,
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
    -- Said the cheap way: a pattern costs more than the rest of the insert.
    constraint job_is_hex check (octet_length(job) = 64 and octet_length(decode(job, 'hex')) = 32),
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
