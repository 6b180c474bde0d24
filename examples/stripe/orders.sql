-- Two orders to try the program out. The key of a job makes it the only one for its order.
select outcome
  from pawl_v1.job_enqueue('payments', 'charge', '{"order": "order-17", "cents": 1250, "card": "pm_card_visa"}', '{"key": "order-17"}');
select outcome
  from pawl_v1.job_enqueue('payments', 'charge', '{"order": "order-18", "cents": 1250, "card": "pm_card_visa_chargeDeclined"}', '{"key": "order-18"}');
