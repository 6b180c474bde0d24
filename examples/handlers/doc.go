// Package handlers holds typical handlers of applications, each with a test. One changes the status
// of a case and writes an audit row, one writes an invoice once, one sends a notification once, and
// one writes a file once. A data migration may be started twice and killed at any point.
package handlers

// Schema has the tables of the handlers.
const Schema = `
create table cases (id bigint primary key, status text not null);
create table case_audit (case_id bigint not null, was text not null, now text not null, message text not null);

create table invoice (id bigint generated always as identity primary key, order_id bigint not null unique, cents bigint not null);

create table notification (key text not null, provider_id text not null, sent_at timestamptz not null default clock_timestamp());

create table report (key text not null, file text not null);

create table customer (id bigint generated always as identity primary key, email text not null, email_normal text);
`
