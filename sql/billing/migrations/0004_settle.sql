-- Ending jobs by batches: one statement closes the holds, writes the ledger
-- rows, books the charges and moves the counters, or does nothing at all.
--
-- Written once, read the notes on locks and arrays in 0003 first.

-- +goose Up

-- settle_once does what settle does. Whether a job was settled before is asked
-- when p_again says so; otherwise anything that cannot be booked is an error.
-- +goose StatementBegin
create function settle_once(
    p_again boolean, p_jobs bytea[], p_accounts text[], p_places int[],
    p_keys text[], p_models text[], p_regions text[], p_routes text[],
    p_outcomes text[], p_sources text[], p_workers text[], p_attempts bigint[],
    p_prompts bigint[], p_cacheds bigint[], p_completions bigint[], p_reasonings bigint[],
    p_versions text[], p_rate_inputs bigint[], p_rate_outputs bigint[], p_rate_cacheds bigint[],
    p_claims bigint[], p_charges bigint[], p_first_bytes bigint[], p_totals bigint[], p_ends timestamptz[]
) returns bigint[] language plpgsql as $$
declare
    r             record;
    v_available   bigint[]; -- of the accounts; null where there is none
    v_hold        bigint[] := array_fill(null::bigint, array[cardinality(p_jobs)]);
    v_decided     bigint[];
    v_charged     bigint[];
    v_short       bigint[];
    v_held        bigint[];
    v_keys        text[] := p_keys;
    v_any_hold    boolean := false;
    v_transaction bigint;
begin
    with locked as (
        select b.balance_micro - b.held_micro as available
        from balances b where b.account_id = any (p_accounts)
        order by b.account_id for no key update
    )
    select array_agg(available) into v_available from locked;
    if cardinality(v_available) is distinct from cardinality(p_accounts) then
        -- Not every account is there: who has what must be asked by name.
        select array_agg(b.balance_micro - b.held_micro order by q.place) into v_available
        from unnest(p_accounts) with ordinality q (account, place) left join balances b on b.account_id = q.account;
    end if;

    -- Closing a hold is how it is read: whoever has the account's row finds none
    -- that another settlement is closing.
    for r in
        delete from holds h using unnest(p_jobs) with ordinality q (job, i)
        where h.job = q.job and h.account_id = p_accounts[p_places[i]]
        returning i::int as i, h.micro, h.key_id
    loop
        v_hold[r.i] := r.micro;
        v_keys[r.i] := r.key_id;
        v_any_hold := true;
    end loop;

    select array_agg(decided), array_agg(case decided when 0 then p_charges[i] else 0 end),
           array_agg(case decided when 0 then coalesce(v_hold[i], 0) else 0 end), array_agg(0::bigint)
    into v_decided, v_charged, v_held, v_short
    from (
        select i, case when s.account_id = p_accounts[p_places[i]] and s.outcome = p_outcomes[i]
                            and s.prompt_tokens = p_prompts[i] and s.cached_tokens = p_cacheds[i]
                            and s.completion_tokens = p_completions[i] and s.claimed_micro = p_claims[i] then 1
                       when s.job is not null then 2
                       when v_available[p_places[i]] is null then 3
                       when h.job is not null then 4
                       else 0 end::bigint as decided
        from unnest(p_jobs) with ordinality q (job, i)
        left join settlements s on s.job = case when p_again then q.job end
        left join holds h on h.job = case when v_hold[i] is null then q.job end
        order by i
    ) d;

    if not p_again and 0 <> any (v_decided) then
        raise exception using errcode = 'unique_violation', message = 'not all jobs can be booked';
    end if;

    -- Mostly the holds cover the charges, and what is free covers the rest.
    if exists (
        select from unnest(v_charged) with ordinality q (charge, i) where charge > v_held[i]
        group by p_places[i] having sum(charge - v_held[i]) > v_available[p_places[i]]
    ) then
        -- What an account has free after each end of the batch, were there no
        -- bottom, is a running sum; the lowest that sum has been so far, where
        -- it is below zero, is what could not be charged so far.
        with summed as (
            select i, charge, p_places[i] as place,
                   (v_available[p_places[i]] + sum(v_held[i] - charge) over (partition by p_places[i] order by i))::bigint as free
            from unnest(v_charged) with ordinality q (charge, i)
        ), missed as (
            select i, charge,
                   least(min(free) over (partition by place order by i
                                         rows between unbounded preceding and 1 preceding), 0)
                   - least(min(free) over (partition by place order by i), 0) as short
            from summed order by i
        )
        select array_agg(charge - short), array_agg(short) into v_charged, v_short from missed;
    end if;

    -- Holds go before charges come: the balance never falls below what is held.
    if v_any_hold then
        update balances b set held_micro = b.held_micro - m.held, open_holds = b.open_holds - m.holds
        from (
            select p_places[i] as place, sum(hold)::bigint as held, count(*) as holds
            from unnest(v_hold) with ordinality q (hold, i) where hold is not null group by 1
        ) m
        where b.account_id = p_accounts[m.place];
    end if;
    if 0 < any (v_charged) then
        insert into transactions (kind) values ('charge') returning id into v_transaction;
        insert into entries (transaction_id, account_id, amount_micro)
        select v_transaction, coalesce(p_accounts[place], 'revenue'), case when place is null then sum(amount) else - sum(amount) end
        from (select p_places[i] as place, amount from unnest(v_charged) with ordinality q (amount, i) where amount > 0) c
        group by grouping sets ((place), ());
    end if;
    if 0 = any (v_decided) then
        insert into settlements (
            job, transaction_id, account_id, key_id, model, region, route, outcome, source, worker, attempt,
            prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens,
            rate_version, rate_input, rate_output, rate_cached,
            claimed_micro, charged_micro, held_micro, shortfall_micro, first_byte_ms, total_ms, ended_at)
        select q.job, case when v_charged[i] > 0 then v_transaction end, p_accounts[p_places[i]],
               v_keys[i], p_models[i], p_regions[i], p_routes[i],
               p_outcomes[i], p_sources[i], p_workers[i], p_attempts[i],
               p_prompts[i], p_cacheds[i], p_completions[i], nullif(p_reasonings[i], -1),
               p_versions[i], p_rate_inputs[i], p_rate_outputs[i], p_rate_cacheds[i],
               p_claims[i], v_charged[i], v_held[i], v_short[i], p_first_bytes[i], p_totals[i], p_ends[i]
        from unnest(p_jobs) with ordinality q (job, i)
        where v_decided[i] = 0;
    end if;
    update keys k set spent_micro = k.spent_micro + m.spent, held_micro = k.held_micro - m.held,
                      open_holds = k.open_holds - m.holds
    from (
        select v_keys[i] collate "C" as key, p_places[i] as place, sum(v_charged[i])::bigint as spent,
               coalesce(sum(hold), 0)::bigint as held, count(hold) as holds
        from unnest(v_hold) with ordinality q (hold, i) where hold is not null or v_charged[i] > 0 group by 1, 2
    ) m
    where k.id = m.key and k.account_id = p_accounts[m.place];
    return v_decided || v_charged || v_short || v_held;
end
$$;
-- +goose StatementEnd

-- settle books a batch of ended jobs and answers four lists, one after the
-- other: what was decided of each, what was charged, what could not be, and what
-- had been held.
--   0 booked   1 booked before, with the same content   2 booked before, with
--   other content   3 no such account   4 the hold belongs to another account
-- Only 0 changes anything. The charge is at most the hold plus what the account
-- has free at that moment; the rest is the shortfall. A job may stand in a
-- batch once. Reasoning tokens that nobody counted are -1 on the way in.
--
-- An account is named once, in order of their ids; p_places says which of them
-- a job is of, counted from one.
--
-- Mostly no job of a batch was settled before. That is not asked but tried, since
-- the primary key of settlements is asked in any case; a batch where it is not so
-- is taken back and begun again with open eyes.
-- +goose StatementBegin
create function settle(
    p_jobs bytea[], p_accounts text[], p_places int[],
    p_keys text[], p_models text[], p_regions text[], p_routes text[],
    p_outcomes text[], p_sources text[], p_workers text[], p_attempts bigint[],
    p_prompts bigint[], p_cacheds bigint[], p_completions bigint[], p_reasonings bigint[],
    p_versions text[], p_rate_inputs bigint[], p_rate_outputs bigint[], p_rate_cacheds bigint[],
    p_claims bigint[], p_charges bigint[], p_first_bytes bigint[], p_totals bigint[], p_ends timestamptz[]
) returns bigint[] language plpgsql as $$
begin
    return settle_once(false, p_jobs, p_accounts, p_places, p_keys, p_models, p_regions, p_routes, p_outcomes, p_sources,
                       p_workers, p_attempts, p_prompts, p_cacheds, p_completions, p_reasonings, p_versions, p_rate_inputs,
                       p_rate_outputs, p_rate_cacheds, p_claims, p_charges, p_first_bytes, p_totals, p_ends);
exception when unique_violation then
    return settle_once(true, p_jobs, p_accounts, p_places, p_keys, p_models, p_regions, p_routes, p_outcomes, p_sources,
                       p_workers, p_attempts, p_prompts, p_cacheds, p_completions, p_reasonings, p_versions, p_rate_inputs,
                       p_rate_outputs, p_rate_cacheds, p_claims, p_charges, p_first_bytes, p_totals, p_ends);
end
$$;
-- +goose StatementEnd
