-- Tables of package guard with rows that are no longer retried, as their sweepers last counted.
select r.name, r.value as rows, r.at
  from (
    select distinct on (u.scope) substr(u.scope, 7) as name, u.value, u.at
      from pawl.rollup as u
     where u.span = 'minute'
       and u.kind = 'level'
       and u.source = 'consumer'
       and u.scope like 'guard/%'
       and u.name = 'final_rows'
     order by u.scope, u.at desc) as r
 where r.value > 0
 order by r.name
