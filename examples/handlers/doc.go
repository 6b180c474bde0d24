// Package handlers holds handlers as applications write them, each with the test that proves it: a case that moves from one status to
// another and leaves an audit row, an invoice that is written once, a notification that is sent once, and a data migration that bears
// being started twice and killed anywhere.
package handlers

// Schema is what the handlers work on.
const Schema = `
create table cases (id bigint primary key, status text not null);
create table case_audit (case_id bigint not null, was text not null, now text not null, message text not null);

create table invoice (id bigint generated always as identity primary key, order_id bigint not null unique, cents bigint not null);

create table notification (key text not null, provider_id text not null, sent_at timestamptz not null default clock_timestamp());

create table customer (id bigint generated always as identity primary key, email text not null, email_normal text);
`
