-- Checks shared by the functions below. They raise; they never repair.

create or replace function pawl_v1._check_scope(p_what text, p_name text)
returns void
language plpgsql
immutable
as $$
begin
  if p_name is null or octet_length(p_name) not between 1 and 255 then
    raise exception '% must have 1 to 255 octets, it has %', p_what, coalesce(octet_length(p_name), 0)
      using errcode = 'P4000', hint = 'pass the same short name at every call';
  end if;
end
$$;

create or replace function pawl_v1._check_key(p_what text, p_key text)
returns void
language plpgsql
immutable
as $$
begin
  if p_key is null or octet_length(p_key) not between 1 and 255 then
    raise exception '% must have 1 to 255 octets, it has %', p_what, coalesce(octet_length(p_key), 0)
      using errcode = 'P4001', hint = 'hash a longer key, for instance encode(sha256(...), ''hex'')';
  end if;
end
$$;

create or replace function pawl_v1._check_hash(p_hash bytea)
returns void
language plpgsql
immutable
as $$
begin
  if p_hash is null or octet_length(p_hash) <> 32 then
    raise exception 'the fingerprint must have 32 octets, it has %', coalesce(octet_length(p_hash), 0)
      using errcode = 'P4003', hint = 'pass sha256(payload)';
  end if;
end
$$;

-- An integer option with bounds. Absent or null means the default.
create or replace function pawl_v1._int_option(
  p_options jsonb,
  p_name    text,
  p_default bigint,
  p_min     bigint,
  p_max     bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
  v_value bigint;
begin
  if jsonb_typeof(p_options -> p_name) is distinct from 'number' then
    if p_options -> p_name is null or jsonb_typeof(p_options -> p_name) = 'null' then
      return p_default;
    end if;
    raise exception 'option % must be a number, it is %', p_name, p_options -> p_name
      using errcode = 'P4004';
  end if;
  v_value := trunc((p_options ->> p_name)::numeric);
  if v_value not between p_min and p_max then
    raise exception 'option % must lie between % and %, it is %', p_name, p_min, p_max, v_value
      using errcode = 'P4004';
  end if;
  return v_value;
end
$$;

-- Refuses options the function does not know: a misspelt one must not be ignored in silence.
create or replace function pawl_v1._check_options(p_options jsonb, p_known text[])
returns void
language plpgsql
immutable
as $$
declare
  v_name text;
begin
  if p_options = '{}'::jsonb then
    return;
  end if;
  if p_options is null or jsonb_typeof(p_options) <> 'object' then
    raise exception 'options must be a JSON object'
      using errcode = 'P4004';
  end if;
  select o.name
    into v_name
    from jsonb_object_keys(p_options) as o (name)
   where o.name <> all (p_known)
   limit 1;
  if found then
    raise exception 'unknown option %', v_name
      using errcode = 'P4004', hint = 'known here: ' || array_to_string(p_known, ', ');
  end if;
end
$$;
