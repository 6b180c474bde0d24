-- Argument checks that the functions below share. They raise an error and never change a value.
--
-- Each check is one SQL expression, which the planner inlines. A function with its own search_path
-- costs as much as all checks of a statement, so the check calls one (_refuse_…) only to raise.
-- Each _refuse function declares cost 1: expensive constant calls are replanned at each execution.

create or replace function pawl_v1._refuse_scope(p_what text, p_name text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception '% must have 1 to 255 octets, it has %', p_what, coalesce(octet_length(p_name), 0)
    using errcode = 'P4000', hint = 'pass the same short name at every call';
end
$$;

create or replace function pawl_v1._check_scope(p_what text, p_name text)
returns void
language sql
immutable
return case when octet_length(p_name) between 1 and 255 then null else pawl_v1._refuse_scope(p_what, p_name) end;

create or replace function pawl_v1._refuse_key(p_what text, p_key text)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception '% must have 1 to 255 octets, it has %', p_what, coalesce(octet_length(p_key), 0)
    using errcode = 'P4001',
          hint = case when octet_length(p_key) > 255 then 'hash a longer key, for instance encode(sha256(...), ''hex'')'
                      else 'pass the name that the sender gave the message or request' end;
end
$$;

create or replace function pawl_v1._check_key(p_what text, p_key text)
returns void
language sql
immutable
return case when octet_length(p_key) between 1 and 255 then null else pawl_v1._refuse_key(p_what, p_key) end;

create or replace function pawl_v1._refuse_hash(p_hash bytea)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception 'the fingerprint must have 32 octets, it has %', coalesce(octet_length(p_hash), 0)
    using errcode = 'P4003', hint = 'pass sha256(payload)';
end
$$;

create or replace function pawl_v1._check_hash(p_hash bytea)
returns void
language sql
immutable
return case when octet_length(p_hash) = 32 then null else pawl_v1._refuse_hash(p_hash) end;

create or replace function pawl_v1._refuse_args(p_payload bytea)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception 'payload must have at most 4194304 octets, it has %', coalesce(octet_length(p_payload)::text, 'none')
    using errcode = 'P4004',
          hint = case when p_payload is null then 'pass an empty payload if there is nothing to say'
                      else 'store a large payload elsewhere and enqueue its reference' end;
end
$$;

create or replace function pawl_v1._check_payload(p_payload bytea)
returns void
language sql
immutable
return case when octet_length(p_payload) <= 4194304 then null else pawl_v1._refuse_args(p_payload) end;

create or replace function pawl_v1._refuse_headers(p_headers jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception 'headers must be a JSON object, they are %', jsonb_typeof(p_headers)
    using errcode = 'P4004';
end
$$;

-- Null passes and means no headers.
create or replace function pawl_v1._check_headers(p_headers jsonb)
returns void
language sql
immutable
return case when jsonb_typeof(p_headers) not in ('object', 'null') then pawl_v1._refuse_headers(p_headers) end;

create or replace function pawl_v1._refuse_int(p_what text, p_value bigint, p_min bigint, p_max bigint)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  raise exception '% must lie between % and %, it is %', p_what, p_min, p_max, p_value
    using errcode = 'P4004';
end
$$;

-- Null passes and means the default.
create or replace function pawl_v1._check_int(p_what text, p_value bigint, p_min bigint, p_max bigint)
returns void
language sql
immutable
return case when p_value not between p_min and p_max then pawl_v1._refuse_int(p_what, p_value, p_min, p_max) end;

-- _before returns the time p_older_than_ms milliseconds ago, at most ten years.
create or replace function pawl_v1._before(p_older_than_ms bigint)
returns timestamptz
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  if p_older_than_ms is null then
    raise exception 'older_than_ms is required'
      using errcode = 'P4004';
  end if;
  perform pawl_v1._check_int('older_than_ms', p_older_than_ms, 0, 315360000000);
  return clock_timestamp() - p_older_than_ms * interval '1 millisecond';
end
$$;

-- _since returns option since, the time where a purge resumes. Default: the beginning.
create or replace function pawl_v1._since(p_options jsonb)
returns timestamptz
language sql
stable
return coalesce((p_options ->> 'since')::timestamptz, '-infinity');

create or replace function pawl_v1._refuse_batch(p_what text, p_count int, p_max int)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  if p_count > p_max then
    raise exception 'a batch has at most % elements, this one has %', p_max, p_count
      using errcode = 'P4004', hint = 'send several batches';
  end if;
  raise exception 'the arrays of a batch must be as long as %, which has %', p_what, p_count
    using errcode = 'P4004', hint = 'pass null for an array of defaults';
end
$$;

-- _check_batch checks that the arrays of one batch have equal length and at most p_max elements.
create or replace function pawl_v1._check_batch(p_what text, p_count int, p_max int, variadic p_lengths int[])
returns void
language sql
immutable
return case when p_count <= p_max and p_count = all (p_lengths) then null else pawl_v1._refuse_batch(p_what, p_count, p_max) end;

create or replace function pawl_v1._int_given(p_options jsonb, p_name text, p_min bigint, p_max bigint)
returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
declare
  v_value bigint;
begin
  if jsonb_typeof(p_options -> p_name) <> 'number' then
    if jsonb_typeof(p_options -> p_name) = 'null' then
      return null;
    end if;
    raise exception 'option % must be a number, it is %', p_name, p_options -> p_name
      using errcode = 'P4004';
  end if;
  v_value := trunc((p_options ->> p_name)::numeric);
  if v_value not between p_min and p_max then
    perform pawl_v1._refuse_int('option ' || p_name, v_value, p_min, p_max);
  end if;
  return v_value;
end
$$;

-- _int_option reads an integer option with bounds. Absent or null means the default. Most options
-- are absent in most calls, so that case makes no call.
create or replace function pawl_v1._int_option(
  p_options jsonb,
  p_name    text,
  p_default bigint,
  p_min     bigint,
  p_max     bigint
)
returns bigint
language sql
immutable
return case when p_options ? p_name then coalesce(pawl_v1._int_given(p_options, p_name, p_min, p_max), p_default) else p_default end;

-- _ms_option reads an option in milliseconds.
create or replace function pawl_v1._ms_option(p_options jsonb, p_name text, p_default bigint, p_min bigint, p_max bigint)
returns interval
language sql
immutable
return pawl_v1._int_option(p_options, p_name, p_default, p_min, p_max) * interval '1 millisecond';

create or replace function pawl_v1._text_array_given(p_options jsonb, p_name text)
returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
as $$
begin
  case jsonb_typeof(p_options -> p_name)
    when 'null' then
      return null;
    when 'array' then
      return array(select jsonb_array_elements_text(p_options -> p_name));
    else
      raise exception 'option % must be an array of texts, it is %', p_name, p_options -> p_name
        using errcode = 'P4004';
  end case;
end
$$;

-- _text_array_option reads an option that is an array of texts. Absent or null means null.
create or replace function pawl_v1._text_array_option(p_options jsonb, p_name text)
returns text[]
language sql
immutable
return case when p_options ? p_name then pawl_v1._text_array_given(p_options, p_name) end;

create or replace function pawl_v1._refuse_options(p_options jsonb, p_known text[])
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
immutable
cost 1
as $$
begin
  if p_options is null or jsonb_typeof(p_options) <> 'object' then
    raise exception 'options must be a JSON object'
      using errcode = 'P4004';
  end if;
  raise exception 'unknown option %', (select min(o.name) from jsonb_object_keys(p_options - p_known) as o (name))
    using errcode = 'P4004', hint = 'known here: ' || array_to_string(p_known, ', ');
end
$$;

-- _check_options refuses unknown options, so that a misspelt one is not silently ignored.
create or replace function pawl_v1._check_options(p_options jsonb, p_known text[])
returns void
language sql
immutable
return case
  when case jsonb_typeof(p_options) when 'object' then p_options - p_known = '{}' end then null
  else pawl_v1._refuse_options(p_options, p_known)
end;

-- _audit_target returns the target of a change as pawl.audit names it: a kind and names. Above 255
-- octets it is the kind and a hash of the names. The record holds the full names.
create or replace function pawl_v1._audit_target(p_kind text, variadic p_names text[])
returns text
language sql
stable
return case
         when octet_length(p_kind || ' ' || array_to_string(p_names, ' ')) <= 255 then p_kind || ' ' || array_to_string(p_names, ' ')
         else p_kind || ' ' || encode(sha256(convert_to(to_jsonb(p_names)::text, 'UTF8')), 'hex')
       end;

-- _is_ours reports whether this transaction wrote a row that it sees, in any of its savepoints. The
-- writer of a visible row can only be in progress if it is this transaction. p_xmin is the row's
-- xmin, 32 bits of a transaction id. age() would not do: its first call in a transaction fixes its
-- reference.
create or replace function pawl_v1._is_ours(p_xmin xid)
returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Null: this transaction has written nothing.
  v_top   bigint := pg_current_xact_id_if_assigned()::text::bigint;
  -- Savepoints have later ids than their transaction.
  v_ahead bigint := (p_xmin::text::bigint - v_top) & 4294967295;
begin
  -- The row is older than this transaction.
  if v_top is null or v_ahead >= 2147483648 then
    return false;
  end if;
  -- An id beyond the snapshot has two possible causes. It belongs to a savepoint of this
  -- transaction. Or the row was frozen long ago, and its 32 bits have wrapped to an id ahead of all
  -- ids in use: pg_xact_status then raises.
  if v_top + v_ahead < pg_snapshot_xmax(pg_current_snapshot())::text::bigint then
    return pg_xact_status((v_top + v_ahead)::text::xid8) = 'in progress';
  end if;
  begin
    return pg_xact_status((v_top + v_ahead)::text::xid8) = 'in progress';
  exception
    when invalid_parameter_value then
      return false;
  end;
end
$$;
