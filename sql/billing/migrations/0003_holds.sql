-- Money set aside before work starts, taken by groups.
--
-- The table holds open holds only. A hold ends by becoming a settlement, which
-- keeps its amount and is the tombstone that refuses it a second time; with the
-- closed ones gone, the table stays as small as the work under way, however
-- many requests there have been.
--
-- take_holds and settle are the only writers of held_micro and open_holds.
-- Both lock the balances of all accounts named, in order of their ids, before
-- they read anything; whoever holds an account's row owns the account's keys
-- and holds as well. So they never wait for each other in a circle, and what
-- they read is still true when they write.
--
-- What reaches the functions are arrays, one a column, read by subscript:
-- unnest would copy each of them first, which costs three times as much.

-- +goose Up

create table holds (
    job          digest primary key,
    account_id   text collate "C" not null,
    key_id       text collate "C" not null,
    model        text not null,
    micro        quantity not null,
    rate_version text not null,
    rate_input   quantity not null,
    rate_output  quantity not null,
    rate_cached  quantity not null,
    created_at   timestamptz not null default now(),
    expires_at   timestamptz not null,
    -- When a sweeper last took it up, so that a second one looks elsewhere.
    swept_at     timestamptz
);

create index holds_by_expiry on holds (expires_at);

-- decide_holds decides a group hold by hold, in the order given, each against
-- what those before it left. The answer is take_holds'.
-- +goose StatementBegin
create function decide_holds(
    p_jobs bytea[], p_accounts text[], p_places int[], p_keys text[], p_key_places int[], p_models text[],
    p_micros bigint[], p_floors bigint[], p_raises boolean[], p_expiries timestamptz[],
    p_versions text[], p_inputs bigint[], p_outputs bigint[], p_cacheds bigint[]
) returns bigint[] language plpgsql as $$
declare
    r           record;
    v_n         int := cardinality(p_jobs);
    v_answers   bigint[] := array_fill(0::bigint, array[2 * cardinality(p_jobs)]);
    v_made      bigint[] := array_fill(null::bigint, array[cardinality(p_jobs)]);
    v_raised    bigint[] := v_made;
    v_any_made  boolean := false;
    v_any_raise boolean := false;
    v_account   text;               -- the account at hand, and its state
    v_available bigint;
    v_open      bigint;
    v_accounts  text[] := '{}';     -- one place per account touched
    v_held      bigint[] := '{}';
    v_opened    bigint[] := '{}';
    v_a         int := 0;
    v_keys      text[] := '{}';     -- one place per key touched
    v_key_held  bigint[] := '{}';
    v_key_opened bigint[] := '{}';
    v_first     int := 1;           -- where the account's keys begin
    v_k         int;
    v_room      bigint;
    v_grant     bigint;
    v_had       bigint;
    v_code      bigint;
begin
    perform from balances b where b.account_id = any (p_accounts)
    order by b.account_id for no key update;

    for r in
        select q.n, q.account, q.key, q.micro, q.floor, q.raising,
               b.balance_micro - b.held_micro as available, b.open_holds, b.concurrent_max,
               k.spend_max_micro - k.spent_micro - k.held_micro as key_room,
               k.open_holds as key_open, k.concurrent_max as key_max,
               k.account_id = q.account and k.revoked_at is null as alive,
               h.micro as had, h.account_id = q.account and h.key_id = q.key as own,
               s.job is not null as settled
        from (
            select i::int as n, q.job, p_accounts[p_places[i]] as account, p_keys[p_key_places[i]] as key,
                   p_micros[i] as micro, p_floors[i] as floor, p_raises[i] as raising
            from unnest(p_jobs) with ordinality q (job, i)
        ) q
        left join balances b on b.account_id = q.account
        left join keys k on k.id = q.key
        left join holds h on h.job = q.job
        left join settlements s on s.job = q.job
        order by q.account, q.n
    loop
        if r.account is distinct from v_account then
            v_account := r.account;
            v_available := r.available;
            v_open := r.open_holds;
            v_a := v_a + 1;
            v_accounts[v_a] := r.account;
            v_held[v_a] := 0;
            v_opened[v_a] := 0;
            v_first := cardinality(v_keys) + 1;
            v_k := null;
        elsif v_keys[v_k] <> r.key then
            -- A search copies the array: only for accounts with several keys.
            v_k := array_position(v_keys, r.key, v_first);
        end if;
        if v_k is null then
            v_k := cardinality(v_keys) + 1;
            v_keys[v_k] := r.key;
            v_key_held[v_k] := 0;
            v_key_opened[v_k] := 0;
        end if;

        v_had := coalesce(r.had, 0);
        v_grant := r.micro;
        if r.settled then
            v_code := 6;
        elsif r.had is not null and not r.own then
            v_code := 7;
        elsif r.had is not null and (not r.raising or r.micro <= r.had) then
            -- Asked again: the same answer again.
            v_code := 0;
            v_grant := r.had;
        elsif r.alive is not true or v_available is null then
            v_code := 5;
        elsif r.had is null and v_open >= r.concurrent_max then
            v_code := 3;
        elsif r.had is null and r.key_open + v_key_opened[v_k] >= r.key_max then
            v_code := 4;
        else
            -- What the job may hold in all; a limit that is not set is null,
            -- and least() passes over it.
            v_room := v_had + least(v_available, r.key_room - v_key_held[v_k]);
            v_grant := least(r.micro, v_room);
            if v_grant = r.micro or (v_grant >= r.floor and v_grant > v_had) then
                v_code := 0;
                v_available := v_available - (v_grant - v_had);
                v_held[v_a] := v_held[v_a] + v_grant - v_had;
                v_key_held[v_k] := v_key_held[v_k] + v_grant - v_had;
                if r.had is null then
                    v_open := v_open + 1;
                    v_opened[v_a] := v_opened[v_a] + 1;
                    v_key_opened[v_k] := v_key_opened[v_k] + 1;
                    v_made[r.n] := v_grant;
                    v_any_made := true;
                else
                    v_raised[r.n] := v_grant;
                    v_any_raise := true;
                end if;
            elsif v_room < v_had + v_available then
                v_code := 2;
            else
                v_code := 1;
            end if;
        end if;
        v_answers[2 * r.n - 1] := v_code;
        v_answers[2 * r.n] := case when v_code = 0 then v_grant else v_had end;
    end loop;

    if v_any_made then
        insert into holds (job, account_id, key_id, model, micro, expires_at,
                           rate_version, rate_input, rate_output, rate_cached)
        select q.job, p_accounts[p_places[i]], p_keys[p_key_places[i]], p_models[i], v_made[i], p_expiries[i],
               p_versions[i], p_inputs[i], p_outputs[i], p_cacheds[i]
        from unnest(p_jobs) with ordinality q (job, i)
        where v_made[i] is not null;
    end if;
    if v_any_raise then
        update holds h set micro = v_raised[i], expires_at = greatest(h.expires_at, p_expiries[i])
        from unnest(p_jobs) with ordinality q (job, i)
        where h.job = q.job and v_raised[i] is not null;
    end if;
    if v_any_made or v_any_raise then
        update balances b set held_micro = b.held_micro + q.held, open_holds = b.open_holds + q.opened
        from unnest(v_accounts, v_held, v_opened) q (account, held, opened)
        where b.account_id = q.account and (q.held <> 0 or q.opened <> 0);
        update keys k set held_micro = k.held_micro + q.held, open_holds = k.open_holds + q.opened
        from unnest(v_keys, v_key_held, v_key_opened) q (key, held, opened)
        where k.id = q.key and (q.held <> 0 or q.opened <> 0);
    end if;
    return v_answers;
end
$$;
-- +goose StatementEnd

-- take_holds decides a group of holds in the order given and answers two
-- numbers for each: what was decided, and how much is held.
--   0 held   1 balance does not cover it   2 the key's spending limit does not
--   3 the account's concurrency limit   4 the key's   5 no such live key
--   6 the job is settled   7 the job is held for another key
-- A job may stand in a group once. The answer is null when all is held as asked.
-- An account or key is named once, in order of the accounts' ids; the places
-- say which of them a job is of, counted from one.
--
-- When everything that is asked for fits, the order does not matter, and sums
-- per account and per key are enough: that is tried first. Anything else, a job
-- that is known already included, takes it back and is decided one by one.
-- +goose StatementBegin
create function take_holds(
    p_jobs bytea[], p_accounts text[], p_places int[], p_keys text[], p_key_places int[], p_models text[],
    p_micros bigint[], p_floors bigint[], p_raises boolean[], p_expiries timestamptz[],
    p_versions text[], p_inputs bigint[], p_outputs bigint[], p_cacheds bigint[]
) returns bigint[] language plpgsql as $$
declare
    v_rows int;
begin
    -- The lock and the first write in one; the rows come in order of their ids.
    update balances b set held_micro = b.held_micro + w.micro, open_holds = b.open_holds + w.holds
    from (
        select p_places[i] as place, sum(p_micros[i])::bigint as micro, count(*) as holds
        from unnest(p_jobs) with ordinality q (job, i) group by 1 order by 1
    ) w
    where b.account_id = p_accounts[w.place] and b.balance_micro - b.held_micro >= w.micro
      and (b.open_holds + w.holds <= b.concurrent_max) is not false;
    get diagnostics v_rows = row_count;
    if v_rows <> cardinality(p_accounts) then
        raise exception using errcode = 'EG001', message = 'not all holds fit';
    end if;
    -- A new statement sees what was committed while the lock was waited for.
    update keys k set held_micro = k.held_micro + w.micro, open_holds = k.open_holds + w.holds
    from (
        select p_key_places[i] as key_place, p_places[i] as place, sum(p_micros[i])::bigint as micro, count(*) as holds
        from unnest(p_jobs) with ordinality q (job, i) group by 1, 2
    ) w
    where k.id = p_keys[w.key_place] and k.account_id = p_accounts[w.place] and k.revoked_at is null
      and (k.spend_max_micro - k.spent_micro - k.held_micro >= w.micro) is not false
      and (k.open_holds + w.holds <= k.concurrent_max) is not false;
    get diagnostics v_rows = row_count;
    if v_rows <> cardinality(p_keys) then
        raise exception using errcode = 'EG001', message = 'not all holds fit';
    end if;
    insert into holds (job, account_id, key_id, model, micro, expires_at,
                       rate_version, rate_input, rate_output, rate_cached)
    select q.job, p_accounts[p_places[i]], p_keys[p_key_places[i]], p_models[i], p_micros[i], p_expiries[i],
           p_versions[i], p_inputs[i], p_outputs[i], p_cacheds[i]
    from unnest(p_jobs) with ordinality q (job, i)
    where not exists (select from settlements s where s.job = q.job);
    get diagnostics v_rows = row_count;
    if v_rows <> cardinality(p_jobs) then
        raise exception using errcode = 'EG001', message = 'not all holds fit';
    end if;
    return null;
exception when unique_violation or numeric_value_out_of_range or sqlstate 'EG001' then
    return decide_holds(p_jobs, p_accounts, p_places, p_keys, p_key_places, p_models, p_micros, p_floors, p_raises,
                        p_expiries, p_versions, p_inputs, p_outputs, p_cacheds);
end
$$;
-- +goose StatementEnd
