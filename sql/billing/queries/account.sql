-- name: CreateAccount :one
insert into accounts (id, name, kind) values (@id, @name, 'customer')
returning id, name, retain, created_at, closed_at;

-- name: CreateBalance :exec
insert into balances (account_id, concurrent_max) values (@account_id, sqlc.narg(concurrent_max)::bigint);

-- name: ListAccounts :many
select a.id, a.name, a.retain, a.created_at, a.closed_at,
       b.balance_micro, b.held_micro, b.open_holds, b.concurrent_max
from accounts a join balances b on b.account_id = a.id
where a.id > @after
order by a.id limit @page;

-- GetAccount finds a customer by id or by name.
-- name: GetAccount :one
select a.id, a.name, a.retain, a.created_at, a.closed_at,
       b.balance_micro, b.held_micro, b.open_holds, b.concurrent_max
from accounts a join balances b on b.account_id = a.id
where a.id = @id_or_name or a.name = @id_or_name
order by (a.id = @id_or_name) desc limit 1;

-- name: CloseAccount :execrows
update accounts set closed_at = now() where id = @id and closed_at is null and kind = 'customer';

-- CreateKey gives no row when the account is not there or closed.
-- name: CreateKey :one
insert into keys (id, account_id, hash, prefix, name, models, spend_max_micro, concurrent_max)
select @id::text, a.id, @hash::bytea, @prefix::text, @name::text, @models::text[], sqlc.narg(spend_max_micro)::bigint, sqlc.narg(concurrent_max)::bigint
from accounts a where a.id = @account_id and a.closed_at is null and a.kind = 'customer'
returning id;

-- name: ListKeys :many
select id, account_id, prefix, name, models, spend_max_micro, concurrent_max,
       spent_micro, held_micro, open_holds, created_at, revoked_at
from keys where account_id = @account_id
order by created_at, id;

-- name: GetKeyByHash :one
select id, account_id, revoked_at from keys where hash = @hash::bytea;

-- RevokeKey gives no row when there is no such live key.
-- name: RevokeKey :one
update keys set revoked_at = now() where id = @id::text and revoked_at is null
returning id;

-- name: GetPrincipal :one
select k.id, k.account_id, k.models, a.retain
from keys k join accounts a on a.id = k.account_id
where k.hash = @hash::bytea and k.revoked_at is null and a.closed_at is null;

-- name: ListPrincipals :many
select k.hash, k.id, k.account_id, k.models, a.retain
from keys k join accounts a on a.id = k.account_id
where k.revoked_at is null and a.closed_at is null and k.hash > @after::bytea
order by k.hash limit @page;

-- name: GetFunds :one
select (balance_micro <= 0)::boolean as empty from balances where account_id = @account_id;

-- name: ListFunds :many
select account_id, (balance_micro <= 0)::boolean as empty
from balances where account_id > @after
order by account_id limit @page;

-- ListenForChanges hears of keys and funds that changed.
-- name: ListenForKeys :exec
listen engy_keys;

-- name: ListenForFunds :exec
listen engy_funds;

-- SetRetain changes no row when the account is not there or closed.
-- name: SetRetain :execrows
update accounts set retain = @retain where id = @id and closed_at is null and kind = 'customer';
