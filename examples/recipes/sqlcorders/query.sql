-- name: InsertOrder :exec
insert into recipe_order (id, cents) values ($1, $2);
