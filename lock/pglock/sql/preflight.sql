-- $1 the table as it stands in statements, $2 its name if it is given without a schema, or ''
-- Row    what would make the server forget locks that it granted, the schemas in which users may find a table of that name if there are several
--
-- A schema counts if the table is the one that we find, or if a search_path has the schema: ours, the default one ("$user", public) of any role
-- that can log in, or one that is set for a role or this database. What other clients set when they connect is not known here.
WITH searched AS (
    SELECT 'public' AS schema
    UNION SELECT unnest(current_schemas(false))::text
    UNION SELECT rolname::text FROM pg_roles WHERE rolcanlogin
    UNION SELECT btrim(one, ' "')
    FROM pg_db_role_setting s, unnest(s.setconfig) setting, regexp_split_to_table(substr(setting, length('search_path=') + 1), ',') one
    WHERE setting LIKE 'search\_path=%' AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
)
SELECT current_setting('synchronous_commit') = 'off',
       coalesce((SELECT relpersistence <> 'p' FROM pg_class WHERE oid = to_regclass($1::text)), false),
       coalesce((SELECT left(string_agg(n.nspname, ', ' ORDER BY n.nspname), 200)
                 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                 WHERE c.relname = $2::text AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
                   AND (c.oid = to_regclass($1::text) OR n.nspname IN (SELECT schema FROM searched))
                 HAVING count(*) > 1), '')
