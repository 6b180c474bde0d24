-- Deliveries as received: for replays, for reconciliation, and as evidence of mismatches.

-- delivery_keep stores a delivery as it came, in the transaction and under the key of its claim.
-- inbox_replay uses the last two options.
--
-- Outcomes:
--   kept     Stored.
--   present  It was kept before.
--
-- Errors:
--   P4004         An argument. The payload has at most 4 MiB.
--   P4000, P4001  The consumer or the key.
--
-- Options:
--   headers      (object) Those that may be kept.
--   verified_by  (1 to 255 octets) The check that authenticated the sender.
--   hash         (text) The hash of the claim, in hexadecimal.
--   stored_as    (object) queue and kind, and optionally headers, lane, lane_policy and
--                max_attempts as of inbox_store, and semantic, the inbox key of its second name.
create or replace function pawl_v1.delivery_keep(p_consumer text, p_key text, p_payload bytea, p_options jsonb default '{}')
returns table (outcome text, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pawl_v1._check_options(p_options, '{headers,verified_by,hash,stored_as}'), pawl_v1._check_scope('consumer', p_consumer),
          pawl_v1._check_key('key', p_key), pawl_v1._check_payload(p_payload), pawl_v1._check_headers(p_options -> 'headers');
  insert into pawl.delivery as d (consumer, key, headers, payload, verified_by, hash, stored_as)
  values (p_consumer, p_key, p_options -> 'headers', p_payload, p_options ->> 'verified_by', decode(p_options ->> 'hash', 'hex'),
          p_options -> 'stored_as')
  on conflict do nothing;
  return query
  select case when found then 'kept' else 'present' end, '{}'::jsonb;
end
$$;

-- delivery_purge deletes deliveries of a consumer that were kept longer ago than p_older_than_ms,
-- at most p_limit (1 to 10,000).
--
-- Outcomes:
--   purged  The column purged is the number of rows. detail.next as of job_key_purge.
--
-- Errors:
--   P4000, P4004  An argument.
--
-- Options:
--   since  (timestamp) As of job_key_purge.
create or replace function pawl_v1.delivery_purge(p_consumer text, p_older_than_ms bigint, p_limit int default 1000, p_options jsonb default '{}')
returns table (outcome text, purged int, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_bitmapscan = off -- walk the age index in order: docs/decisions/0036-purging.md
set enable_sort = off
set enable_seqscan = off
as $$
declare
  v_before timestamptz;
  v_due    tid[];
  v_next   timestamptz;
  v_purged int;
begin
  perform pawl_v1._check_options(p_options, '{since}');
  v_before := pawl_v1._purge_before(p_consumer, p_older_than_ms, p_limit);
  select array_agg(o.ctid), max(o.received_at) -- ctids: see job_key_purge
    into v_due, v_next
    from (
      select d.ctid, d.received_at
        from pawl.delivery as d
       where d.received_at < v_before
         and d.received_at >= pawl_v1._since(p_options)
         and d.consumer = p_consumer
       order by d.received_at
       limit p_limit
         for update skip locked
    ) as o;
  delete from pawl.delivery as d
   where d.ctid = any (v_due)
     and d.received_at < v_before;
  get diagnostics v_purged = row_count;
  return query
  select 'purged', v_purged, jsonb_strip_nulls(jsonb_build_object('next', v_next));
end
$$;
