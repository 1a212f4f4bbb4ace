-- $1 the table as it stands in statements, $2 its name if it is given without a schema, or ''
-- Row    what would make the server forget locks that it granted, the schemas that have a table of that name if there are several
SELECT current_setting('synchronous_commit') = 'off',
       coalesce((SELECT relpersistence <> 'p' FROM pg_class WHERE oid = to_regclass($1::text)), false),
       coalesce((SELECT left(string_agg(n.nspname, ', ' ORDER BY n.nspname), 200)
                 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE c.relname = $2::text AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
                 HAVING count(*) > 1), '')
