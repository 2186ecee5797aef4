-- Ending jobs by batches: one statement closes the holds, writes the ledger
-- rows, books the charges and moves the counters, or does nothing at all.
--
-- Written once, read the notes on locks in 0003 first.

-- +goose Up

-- settle books a batch of ended jobs and answers four numbers for each: what
-- was decided, what was charged, what could not be, and what had been held.
--   0 booked   1 booked before, with the same content   2 booked before, with
--   other content   3 no such account   4 the hold belongs to another account
-- Only 0 changes anything. The charge is at most the hold plus what the account
-- has free at that moment; the rest is the shortfall. A job may stand in a
-- batch once. Reasoning tokens that nobody counted are -1 on the way in.
-- +goose StatementBegin
create function settle(
    p_jobs text[], p_accounts text[], p_keys text[], p_models text[], p_regions text[], p_routes text[],
    p_outcomes text[], p_sources text[], p_workers text[], p_attempts bigint[],
    p_prompts bigint[], p_cacheds bigint[], p_completions bigint[], p_reasonings bigint[],
    p_versions text[], p_rate_inputs bigint[], p_rate_outputs bigint[], p_rate_cacheds bigint[],
    p_claims bigint[], p_charges bigint[], p_first_bytes bigint[], p_totals bigint[], p_ends timestamptz[]
) returns bigint[] language plpgsql as $$
declare
    r            record;
    v_answers    bigint[] := array_fill(0::bigint, array[4 * cardinality(p_jobs)]);
    v_charged    bigint[] := array_fill(null::bigint, array[cardinality(p_jobs)]); -- null: not booked now
    v_short      bigint[] := v_charged;
    v_held       bigint[] := v_charged;
    v_keys       text[] := p_keys;
    v_any        boolean := false;
    v_any_charge boolean := false;
    v_any_hold   boolean := false;
    v_account    text;
    v_available  bigint;
    v_hold       bigint;
    v_charge     bigint;
    v_code       bigint;
begin
    perform from balances b where b.account_id = any (p_accounts)
    order by b.account_id for no key update;

    for r in
        select q.n::int as n, q.account, q.charge,
               b.balance_micro - b.held_micro as available,
               h.micro as hold, h.key_id as hold_key, h.account_id = q.account as own,
               s.job is not null as settled,
               s.account_id = q.account and s.outcome = q.outcome and s.prompt_tokens = q.prompt
                   and s.cached_tokens = q.cached and s.completion_tokens = q.completion
                   and s.claimed_micro = q.claim as same
        from unnest(p_jobs, p_accounts, p_outcomes, p_prompts, p_cacheds, p_completions, p_claims, p_charges)
             with ordinality q (job, account, outcome, prompt, cached, completion, claim, charge, n)
        left join balances b on b.account_id = q.account
        left join holds h on h.job = q.job
        left join settlements s on s.job = q.job
        order by q.account, q.n
    loop
        if r.account is distinct from v_account then
            v_account := r.account;
            v_available := r.available;
        end if;
        if r.settled then
            v_answers[4 * r.n - 3] := case when r.same then 1 else 2 end;
            continue;
        elsif v_available is null then
            v_answers[4 * r.n - 3] := 3;
            continue;
        elsif r.hold is not null and not r.own then
            v_answers[4 * r.n - 3] := 4;
            continue;
        end if;
        v_any := true;
        v_hold := coalesce(r.hold, 0);
        v_charge := r.charge;
        if v_charge > v_hold then
            v_charge := least(v_charge, v_hold + v_available);
        end if;
        v_available := v_available + v_hold - v_charge;
        v_charged[r.n] := v_charge;
        v_held[r.n] := v_hold;
        v_short[r.n] := r.charge - v_charge;
        v_any_charge := v_any_charge or v_charge > 0;
        if r.hold is not null then
            v_any_hold := true;
            v_keys[r.n] := r.hold_key;
        end if;
        v_answers[4 * r.n - 2] := v_charge;
        v_answers[4 * r.n - 1] := r.charge - v_charge;
        v_answers[4 * r.n] := v_hold;
    end loop;
    if not v_any then
        return v_answers;
    end if;

    insert into settlements (
        job, account_id, key_id, model, region, route, outcome, source, worker, attempt,
        prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens,
        rate_version, rate_input, rate_output, rate_cached,
        claimed_micro, charged_micro, held_micro, shortfall_micro, first_byte_ms, total_ms, ended_at)
    select q.job, q.account, q.key, q.model, q.region, q.route, q.outcome, q.source, q.worker, q.attempt,
           q.prompt, q.cached, q.completion, nullif(q.reasoning, -1),
           q.version, q.rate_input, q.rate_output, q.rate_cached,
           q.claim, q.charged, q.held, q.short, q.first_byte, q.total, q.ended
    from unnest(p_jobs, p_accounts, v_keys, p_models, p_regions, p_routes, p_outcomes, p_sources, p_workers, p_attempts,
                p_prompts, p_cacheds, p_completions, p_reasonings,
                p_versions, p_rate_inputs, p_rate_outputs, p_rate_cacheds,
                p_claims, v_charged, v_held, v_short, p_first_bytes, p_totals, p_ends)
         q (job, account, key, model, region, route, outcome, source, worker, attempt,
            prompt, cached, completion, reasoning,
            version, rate_input, rate_output, rate_cached,
            claim, charged, held, short, first_byte, total, ended)
    where q.charged is not null;

    -- Holds go before charges come: the balance never falls below what is held.
    with closed as (
        delete from holds h using unnest(p_jobs, v_charged) q (job, charged)
        where v_any_hold and h.job = q.job and q.charged is not null
        returning h.account_id, h.key_id, h.micro
    ), ended as (
        select q.account, q.key, q.charged as spent
        from unnest(p_accounts, v_keys, v_charged) q (account, key, charged)
        where q.charged > 0
    ), by_account as (
        select c.account_id, sum(c.micro)::bigint as held, count(*) as holds from closed c group by c.account_id
    ), by_key as (
        select account, key, sum(spent)::bigint as spent, sum(held)::bigint as held, sum(holds)::bigint as holds
        from (
            select e.account, e.key, e.spent, 0::bigint as held, 0 as holds from ended e
            union all
            select c.account_id, c.key_id, 0, c.micro, 1 from closed c
        ) u group by account, key
    ), keys_moved as (
        update keys k set spent_micro = k.spent_micro + m.spent, held_micro = k.held_micro - m.held,
                          open_holds = k.open_holds - m.holds
        from by_key m where k.id = m.key and k.account_id = m.account
    )
    update balances b set held_micro = b.held_micro - m.held, open_holds = b.open_holds - m.holds
    from by_account m where b.account_id = m.account_id;

    if v_any_charge then
        insert into transactions (id, kind)
        select q.job, 'charge' from unnest(p_jobs, v_charged) q (job, charged) where q.charged > 0;
        insert into entries (transaction_id, account_id, amount_micro)
        select q.job, l.account_id, l.amount
        from unnest(p_jobs, p_accounts, v_charged) q (job, account, charged)
        cross join lateral (values (q.account, -q.charged), ('revenue', q.charged)) l (account_id, amount)
        where q.charged > 0;
    end if;
    return v_answers;
end
$$;
-- +goose StatementEnd
