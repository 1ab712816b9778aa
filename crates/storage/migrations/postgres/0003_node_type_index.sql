-- A publication asks who has its node types; without this each commit would read those of all plugins.
CREATE INDEX publication_node_types_by_type ON publication_node_types (node_type);
