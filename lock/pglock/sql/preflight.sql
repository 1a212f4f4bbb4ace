-- $1 the table
-- Row    what would make the server forget locks that it granted
SELECT current_setting('synchronous_commit') = 'off',
       coalesce((SELECT relpersistence <> 'p' FROM pg_class WHERE oid = to_regclass($1::text)), false)
