-- The tables of the service, for your own migrations. `pawl migrate up` creates Pawl's tables.
create table orders (
  id       bigint generated always as identity primary key,
  customer text not null check (customer <> ''),
  cents    bigint not null check (cents > 0)
);

create table payment (
  order_id bigint not null references orders,
  charge   text not null, -- the provider's name for the charge; empty if it was declined
  declined text not null, -- why; empty if it was paid
  at       timestamptz not null default clock_timestamp()
);
create index on payment (charge);

create table refund (
  order_id bigint not null references orders,
  at       timestamptz not null default clock_timestamp()
);

create table daily_report (until timestamptz not null, paid bigint not null, refunded bigint not null);
