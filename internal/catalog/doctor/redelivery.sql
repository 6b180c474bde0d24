-- Consumers that remember for a shorter time than their source may redeliver.
select c.name, c.window_ms / 3600000 as remembers, c.horizon_ms / 3600000 as delivers
  from pawl.consumer as c
 where c.window_ms < c.horizon_ms
