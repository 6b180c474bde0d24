-- An event exists if and only if the transaction that appended it committed.
--
--   your transaction:  your rows + outbox_append ── commit ──▶ job in queue 'outbox/SINK',
--                                                              in the lane of its aggregate
--                                                                │ claim, publish, finish; next
--                                                                ▼
--                               the sink, at least once, with the same event id each time
--
-- An event is a job of kind 'event' whose handler publishes it. Claims, leases, retries, dead
-- letters, lanes and operators' verbs are those of jobs, so functions that change jobs and lanes
-- also change events. This section defines what an event is.

-- _joined joins parts into an unambiguous key: each part after its length in octets. A result above
-- 255 octets is hashed.
create or replace function pawl_v1._joined(p_one text, p_two text, p_three text default null)
returns text
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
declare
  v_key text := octet_length(p_one) || ':' || p_one || octet_length(p_two) || ':' || p_two
    || coalesce(octet_length(p_three) || ':' || p_three, '');
begin
  if octet_length(v_key) > 255 then
    return 'sha256:' || encode(sha256(convert_to(v_key, 'UTF8')), 'hex');
  end if;
  return v_key;
end
$$;

-- _check_event checks the names and headers of an event.
create or replace function pawl_v1._check_event(p_sink text, p_type text, p_aggregate_type text, p_aggregate_id text, p_scope text,
  p_key text, p_headers jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
declare
  -- CloudEvents (type String) and HTTP headers allow no control characters.
  c_control constant text := '[\u0001-\u001F\u007F]';
  v_name    text;
begin
  if p_sink is null or octet_length(p_sink) not between 1 and 200 then
    raise exception 'sink must have 1 to 200 octets, it has %', coalesce(octet_length(p_sink), 0)
      using errcode = 'P4000', hint = 'pass the name of the relay that is to publish the event';
  end if;
  perform pawl_v1._check_scope('event type', p_type), pawl_v1._check_headers(p_headers);
  if (p_aggregate_type is null) <> (p_aggregate_id is null) then
    raise exception 'an aggregate has both a type and an id'
      using errcode = 'P4004', hint = 'pass null for both if the event needs no order';
  end if;
  if p_aggregate_type is not null then
    perform pawl_v1._check_scope('aggregate type', p_aggregate_type), pawl_v1._check_scope('aggregate id', p_aggregate_id);
  end if;
  if (p_scope is null) <> (p_key is null) then
    raise exception 'an event has both a scope and a key, or neither'
      using errcode = 'P4004', hint = 'pass those of the command that appends it, or null for both to have a key made';
  end if;
  if p_key is not null then
    perform pawl_v1._check_scope('scope', p_scope), pawl_v1._check_key('key', p_key);
  end if;
  if concat(p_sink, p_type, p_aggregate_type, p_aggregate_id, p_scope, p_key) ~ c_control then
    select n.what
      into v_name
      from (values ('sink', p_sink), ('event type', p_type), ('aggregate type', p_aggregate_type), ('aggregate id', p_aggregate_id),
                   ('scope', p_scope), ('key', p_key)) as n (what, name)
     where n.name ~ c_control;
    raise exception 'the % holds a control character, which no event can carry', v_name
      using errcode = 'P4004', hint = 'line feeds and other control characters belong into the payload';
  end if;
  if jsonb_typeof(p_headers) = 'object' then
    select h.key
      into v_name
      from jsonb_each(p_headers) as h
     where jsonb_typeof(h.value) <> 'string'
        or lower(h.key) in ('ce-id', 'ce-type', 'ce-specversion')
        or h.key ilike 'pawl-%'
     limit 1;
    if found then
      raise exception 'header % is not a text, or is not yours to set', v_name
        using errcode = 'P4004', hint = 'ce-id, ce-type, ce-specversion and names that begin with pawl- are set by the outbox';
    end if;
    select h.key
      into v_name
      from jsonb_each_text(p_headers) as h
     where h.key ~ c_control
        or replace(h.value, e'\t', '') ~ c_control
     limit 1;
    if found then
      raise exception 'header % holds a control character, which no event can carry', quote_ident(v_name)
        using errcode = 'P4004', hint = 'line feeds and other control characters belong into the payload; only a tab may stand in a value';
    end if;
  end if;
end
$$;

-- _event_headers returns the headers that are stored with an event.
create or replace function pawl_v1._event_headers(p_id text, p_type text, p_aggregate_type text, p_aggregate_id text, p_headers jsonb)
returns jsonb
language sql
stable -- as jsonb_build_object is
return coalesce(nullif(p_headers, 'null'), '{}')
    || case when p_aggregate_id is null then jsonb_build_object('ce-id', p_id, 'ce-type', p_type)
         else jsonb_build_object('ce-id', p_id, 'ce-type', p_type,
           'pawl-aggregate-type', p_aggregate_type, 'pawl-aggregate-id', p_aggregate_id)
       end;

-- outbox_append appends one event, in your transaction. p_sink names the relay that is to publish
-- it, 1 to 200 octets; Go's default is 'default'. Events of one aggregate are published one at a
-- time, in the order in which they were appended. Others that append to the aggregate wait until
-- your transaction ends, so append late. Null for both parts of the aggregate: no order.
--
-- By event_id, receivers recognise a second delivery. It is made of scope, key and type, or a UUID
-- without them. Names, keys and headers must not contain control characters (U+0001 to U+001F,
-- U+007F), because no sink could carry them. A tab is allowed in the value of a header.
--
-- Outcomes:
--   appended   It is published once you have committed.
--   duplicate  An earlier call with this scope, key and type appended it. event_id and job_id are
--              those of the earlier event, which may be published by now.
--
-- Errors:
--   P4002  The scope, key and type came before with another aggregate or payload. DETAIL holds both
--          hashes.
--   40P01  Several calls in one transaction met several in another. Restart the transaction.
--   40001  A key or a lane appeared and disappeared three times. Restart the transaction.
--   P4000, P4001, P4003, P4004
--          An argument.
--
-- Options:
--   scope, key    (text, default none) Both or neither. The same scope, key and type append once.
--                 Without them every event is new.
--   hash          (64 hexadecimal digits, default over aggregate and payload) Tells events apart
--                 under one key.
--   retention_ms  (1 s to 10 years, default 24 h) How long the key is remembered, also after
--                 publishing.
--   max_attempts  (1 to 1000, default 25) After so many attempts the event is a dead letter.
--   headers       (object of texts, default none) 'content-type', 'ce-source', 'ce-time' (RFC
--                 3339), 'traceparent', your own. 'ce-id', 'ce-type', 'ce-specversion' and names
--                 that begin with 'pawl-' are refused.
--   lane_policy   ('block', 'park' or 'skip', default 'block') The policy of an aggregate without
--                 events: see lane_policy.
create or replace function pawl_v1.outbox_append(
  p_sink           text,
  p_type           text,
  p_aggregate_type text,
  p_aggregate_id   text,
  p_payload        bytea,
  p_options        jsonb default '{}'
)
returns table (outcome text, event_id text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_scope   text := p_options ->> 'scope';
  v_key     text := p_options ->> 'key';
  v_lane    text;
  v_id      text;
  v_options jsonb;
begin
  perform pawl_v1._check_options(p_options, '{scope,key,hash,retention_ms,max_attempts,headers,lane_policy}'),
          pawl_v1._check_event(p_sink, p_type, p_aggregate_type, p_aggregate_id, v_scope, v_key, p_options -> 'headers');
  if p_aggregate_id is not null then
    v_lane := pawl_v1._joined(p_aggregate_type, p_aggregate_id);
  end if;
  if v_key is null then
    v_id := gen_random_uuid()::text;
    v_options := p_options - '{scope,key,hash,retention_ms}'::text[];
  else
    v_id := pawl_v1._joined(v_scope, v_key, p_type);
    v_options := p_options - 'scope' || jsonb_build_object('key', v_id,
      'hash', coalesce(p_options ->> 'hash', encode(pawl_v1._job_hash(coalesce(v_lane, ''), p_payload), 'hex')));
  end if;
  v_options := v_options
    || jsonb_build_object('headers', pawl_v1._event_headers(v_id, p_type, p_aggregate_type, p_aggregate_id, p_options -> 'headers'));
  if v_lane is not null then
    v_options := v_options || jsonb_build_object('lane', v_lane);
  end if;
  return query
  select case e.outcome when 'enqueued' then 'appended' else e.outcome end, v_id, e.job_id, e.detail
    from pawl_v1.job_enqueue('outbox/' || p_sink, 'event', p_payload, v_options) as e;
end
$$;

-- outbox_append_many appends up to 10,000 events in one statement. Element i of every array belongs
-- to event i, and the arrays are equally long. A null array, or a null element, means the default
-- of outbox_append. The rows come in order, and n counts from 1. Aggregates and keys are locked in
-- sorted order, so two calls cannot deadlock. Several calls in one transaction can.
--
-- Outcomes:
--   appended, duplicate  As of outbox_append.
--
-- Errors:
--   P4002, 40P01, 40001, P4000, P4001, P4003, P4004
--             As of outbox_append. No event is appended.
--
-- Options:
--   retention_ms, lane_policy
--             As of outbox_append, for all events.
create or replace function pawl_v1.outbox_append_many(
  p_sinks           text[],
  p_types           text[],
  p_aggregate_types text[],
  p_aggregate_ids   text[],
  p_payloads        bytea[],
  p_scopes          text[] default null,
  p_keys            text[] default null,
  p_hashes          bytea[] default null,
  p_max_attempts    int[] default null,
  p_headers         jsonb[] default null,
  p_options         jsonb default '{}'
)
returns table (n int, outcome text, event_id text, job_id bigint, detail jsonb)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  v_count   int := coalesce(cardinality(p_sinks), 0);
  v_lanes   text[];
  v_keys    text[];
  v_hashes  bytea[];
  v_ids     text[];
  v_headers jsonb[];
begin
  perform pawl_v1._check_options(p_options, '{retention_ms,lane_policy}'),
          pawl_v1._check_batch('sinks', v_count, 10000, coalesce(cardinality(p_types), 0),
    coalesce(cardinality(p_aggregate_types), 0), coalesce(cardinality(p_aggregate_ids), 0), coalesce(cardinality(p_payloads), 0),
    coalesce(cardinality(p_scopes), v_count), coalesce(cardinality(p_keys), v_count), coalesce(cardinality(p_hashes), v_count),
    coalesce(cardinality(p_max_attempts), v_count), coalesce(cardinality(p_headers), v_count));
  if v_count = 0 then
    return;
  end if;
  perform pawl_v1._check_event(r.sink, r.type, r.aggregate_type, r.aggregate_id, r.scope, r.key, r.headers)
     from unnest(p_sinks, p_types, p_aggregate_types, p_aggregate_ids, p_scopes, p_keys, p_headers)
            as r (sink, type, aggregate_type, aggregate_id, scope, key, headers);
  select array_agg(case when e.key is not null then pawl_v1._joined(e.scope, e.key, e.type) end order by e.n),
         array_agg(pawl_v1._joined(e.aggregate_type, e.aggregate_id) order by e.n)
    into v_keys, v_lanes
    from unnest(p_types, p_aggregate_types, p_aggregate_ids, p_scopes, p_keys)
           with ordinality as e (type, aggregate_type, aggregate_id, scope, key, n);
  select array_agg(coalesce(e.key, gen_random_uuid()::text) order by e.n),
         array_agg(case when e.key is not null
           then coalesce(e.hash, pawl_v1._job_hash(coalesce(e.lane, ''), e.payload)) end order by e.n)
    into v_ids, v_hashes
    from unnest(v_keys, p_hashes, v_lanes, p_payloads) with ordinality as e (key, hash, lane, payload, n);
  select array_agg(pawl_v1._event_headers(e.id, e.type, e.aggregate_type, e.aggregate_id, e.headers) order by e.n)
    into v_headers
    from unnest(v_ids, p_types, p_aggregate_types, p_aggregate_ids, p_headers)
           with ordinality as e (id, type, aggregate_type, aggregate_id, headers, n);
  return query
  select e.n, case e.outcome when 'enqueued' then 'appended' else e.outcome end, v_ids[e.n], e.job_id, e.detail
    from pawl_v1.job_enqueue_many(
           array(select 'outbox/' || s.sink from unnest(p_sinks) with ordinality as s (sink, n) order by s.n),
           array_fill('event'::text, array[v_count]), p_payloads, v_keys, v_hashes, null, null, p_max_attempts, v_headers,
           p_options || jsonb_build_object('lanes', to_jsonb(v_lanes))) as e;
end
$$;
