-- Who owns money, and which keys may spend it.
--
-- An account's money stands in a row of its own (balances), apart from what an
-- operator edits: it changes with every request and must stay small. A key's
-- running totals stand in the key's row for the same reason: a hold then reads
-- one row per key. Neither counter is indexed, and both tables keep room in
-- their pages, so that an update touches no index.
--
-- A rule of one column is a domain, not a check of the table. PostgreSQL reads
-- a table's checks anew in every statement that writes it, and small groups of
-- holds are mostly such beginnings; a domain's rule stays ready, and is asked
-- only where its column is written.
--
-- Every change that an edge must hear of is announced by a trigger, not by the
-- program that made it: an operator's hand in psql is heard as well.

-- +goose Up

create domain quantity as bigint constraint quantity_is_not_negative check (value >= 0);
create domain parallel as bigint constraint parallel_is_positive check (value > 0);
create domain digest as bytea constraint digest_has_32_bytes check (octet_length(value) = 32);
create domain label as text constraint label_is_short check (octet_length(value) <= 200);

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
    held_micro     quantity not null default 0,
    open_holds     quantity not null default 0,
    concurrent_max parallel,
    -- So the balance is not negative either.
    constraint balance_covers_held check (held_micro <= balance_micro)
) with (fillfactor = 60);

create table keys (
    id              label collate "C" primary key,
    account_id      text collate "C" not null references accounts (id),
    -- The SHA-256 of the key. The key itself is nowhere.
    hash            digest not null unique,
    -- The first characters, for people to tell keys apart.
    prefix          label not null,
    name            label not null default '',
    -- Catalogue ids that the key may use; none means all.
    models          text[] not null default '{}',
    spend_max_micro quantity,
    concurrent_max  parallel,
    spent_micro     quantity not null default 0,
    held_micro      quantity not null default 0,
    open_holds      quantity not null default 0,
    created_at      timestamptz not null default now(),
    revoked_at      timestamptz
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
    when ((old.balance_micro > 0) <> (new.balance_micro > 0))
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
