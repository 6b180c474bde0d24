create table recipe_order (id text not null, cents bigint not null);
