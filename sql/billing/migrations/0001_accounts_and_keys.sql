-- Who owns money, and which keys may spend it.
--
-- An account's money stands in a row of its own (balances), apart from what an
-- operator edits: it changes with every request and must stay small. A key's
-- running totals stand in the key's row for the same reason: a hold then reads
-- one row per key. Neither counter is indexed, and both tables keep room in
-- their pages, so that an update touches no index.
--
-- Every change that an edge must hear of is announced by a trigger, not by the
-- program that made it: an operator's hand in psql is heard as well.

-- +goose Up

create table accounts (
    id         text collate "C" primary key check (length(id) between 1 and 64),
    name       text not null unique check (name <> '' and length(name) <= 200),
    -- A system account is one of our own, the other side of every booking. It
    -- has no row in balances: what it holds is the sum of its entries, and a
    -- row that every booking updates would be a queue.
    kind       text not null check (kind in ('customer', 'system')),
    retain     boolean not null default false,
    created_at timestamptz not null default now(),
    closed_at  timestamptz
);

insert into accounts (id, name, kind) values
    ('funding', 'funding: what customers paid in', 'system'),
    ('revenue', 'revenue: what customers used', 'system');

create table balances (
    -- No foreign key: a booking updates the row twice in one transaction, and
    -- PostgreSQL looks the account up again the second time. CreateAccount
    -- writes both rows, and entries ask for the account themselves.
    account_id     text collate "C" primary key,
    balance_micro  bigint not null default 0,
    held_micro     bigint not null default 0,
    open_holds     bigint not null default 0,
    concurrent_max bigint,
    -- Nothing is negative, and the balance covers what is held. One check and
    -- not five: PostgreSQL reads every check anew for every statement, and this
    -- row is written by all of them. A limit that is null is passed over.
    constraint balance_covers_held check (
        least(balance_micro, held_micro, open_holds, balance_micro - held_micro, concurrent_max - 1) >= 0)
) with (fillfactor = 60);

create table keys (
    id              text collate "C" primary key,
    account_id      text collate "C" not null references accounts (id),
    -- The SHA-256 of the key. The key itself is nowhere.
    hash            bytea not null unique,
    -- The first characters, for people to tell keys apart.
    prefix          text not null,
    name            text not null default '',
    -- Catalogue ids that the key may use; none means all.
    models          text[] not null default '{}',
    spend_max_micro bigint,
    concurrent_max  bigint,
    spent_micro     bigint not null default 0,
    held_micro      bigint not null default 0,
    open_holds      bigint not null default 0,
    created_at      timestamptz not null default now(),
    revoked_at      timestamptz,
    constraint key_is_well_formed check (octet_length(hash) = 32
        and greatest(octet_length(id), octet_length(prefix) + 48, octet_length(name) - 136) <= 64),
    constraint key_counts check (
        least(spent_micro, held_micro, open_holds, spend_max_micro, concurrent_max - 1) >= 0)
) with (fillfactor = 60);

create index keys_by_account on keys (account_id, id);

-- +goose StatementBegin
create function announce_key() returns trigger language plpgsql as $$
begin
    perform pg_notify('engy_keys', encode(new.hash, 'hex'));
    return null;
end
$$;
-- +goose StatementEnd

create trigger key_made after insert on keys
    for each row execute function announce_key();
create trigger key_changed after update of revoked_at, models, account_id, hash on keys
    for each row execute function announce_key();

-- +goose StatementBegin
create function announce_account() returns trigger language plpgsql as $$
begin
    perform pg_notify('engy_keys', encode(k.hash, 'hex')) from keys k where k.account_id = new.id;
    return null;
end
$$;
-- +goose StatementEnd

create trigger account_changed after update of retain, closed_at on accounts
    for each row execute function announce_account();

-- +goose StatementBegin
create function announce_funds() returns trigger language plpgsql as $$
begin
    perform pg_notify('engy_funds', new.account_id);
    return null;
end
$$;
-- +goose StatementEnd

create trigger funds_made after insert on balances
    for each row execute function announce_funds();
-- Only the crossing is news: the condition is tested before anything is queued.
create trigger funds_crossed after update on balances for each row
    when ((old.balance_micro > old.held_micro) <> (new.balance_micro > new.held_micro))
    execute function announce_funds();

-- +goose StatementBegin
create function revoke_keys_of_closed() returns trigger language plpgsql as $$
begin
    -- A hold looks at the key alone, so closing an account is revoking its keys.
    -- The balance's row is locked first, as everyone does who writes several
    -- keys of an account.
    perform from balances where account_id = new.id for no key update;
    update keys set revoked_at = now() where account_id = new.id and revoked_at is null;
    return null;
end
$$;
-- +goose StatementEnd

create trigger account_closed after update of closed_at on accounts for each row
    when (new.closed_at is not null)
    execute function revoke_keys_of_closed();
