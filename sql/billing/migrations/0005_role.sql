-- The role that billing works as. It may add to the journal and never change
-- it; it may move what is held, and not the balance: that is for the trigger on
-- entries alone. The login that opens the connection takes the role on, and its
-- own rights, which migrations need, are out of reach of the service.

-- +goose Up

-- +goose StatementBegin
do $$
begin
    -- Roles belong to the whole server: another database may have made it, or
    -- be making it at this moment.
    begin
        create role engy_billing nologin;
    exception when duplicate_object or unique_violation then
        null;
    end;
    if not (select rolsuper from pg_roles where rolname = current_user) then
        execute format('grant engy_billing to %I', current_user);
    end if;
end
$$;
-- +goose StatementEnd

grant select, insert on accounts to engy_billing;
grant update (name, retain, closed_at) on accounts to engy_billing;
grant select, insert (account_id, concurrent_max) on balances to engy_billing;
grant update (held_micro, open_holds, concurrent_max) on balances to engy_billing;
grant select, insert, update on keys to engy_billing;
grant select, insert, update, delete on holds to engy_billing;
grant select, insert on settlements, entries to engy_billing;
-- Numbers and the place in time of a transaction are not for the service to say.
grant select, insert (kind, cause, note) on transactions to engy_billing;
