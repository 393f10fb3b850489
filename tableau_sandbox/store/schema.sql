CREATE TABLE IF NOT EXISTS site (
    luid TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    content_url TEXT NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS user (
    luid TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE COLLATE NOCASE,
    password_hash TEXT NOT NULL,
    site_role TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS access_token (
    name TEXT PRIMARY KEY,
    secret_hash TEXT NOT NULL,
    user TEXT NOT NULL REFERENCES user
);
CREATE TABLE IF NOT EXISTS session (
    token_digest TEXT PRIMARY KEY,
    user TEXT NOT NULL REFERENCES user,
    site TEXT NOT NULL REFERENCES site,
    access_token TEXT REFERENCES access_token,
    expires_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS used_token (
    identifier TEXT PRIMARY KEY,
    expires_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS project (
    luid TEXT PRIMARY KEY,
    site TEXT NOT NULL REFERENCES site,
    parent TEXT REFERENCES project ON DELETE CASCADE,
    owner TEXT NOT NULL REFERENCES user,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    content_permissions TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS datasource (
    luid TEXT PRIMARY KEY,
    site TEXT NOT NULL REFERENCES site,
    project TEXT NOT NULL REFERENCES project ON DELETE CASCADE,
    owner TEXT NOT NULL REFERENCES user,
    connection TEXT NOT NULL,
    name TEXT NOT NULL,
    content_url TEXT NOT NULL,
    description TEXT NOT NULL,
    is_certified INTEGER NOT NULL,
    certification_note TEXT NOT NULL,
    use_remote_query_agent INTEGER NOT NULL,
    encrypt_extracts INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    revision INTEGER NOT NULL,
    -- The published content: a file in content/, its path in the package, its model.
    hyper_file TEXT NOT NULL,
    hyper_bytes INTEGER NOT NULL,
    packaged_path TEXT NOT NULL,
    tds BLOB NOT NULL,
    connection_class TEXT NOT NULL,
    has_extracts INTEGER NOT NULL,
    tables TEXT NOT NULL,
    UNIQUE (site, content_url)
);
CREATE TABLE IF NOT EXISTS revision (
    datasource TEXT NOT NULL REFERENCES datasource ON DELETE CASCADE,
    number INTEGER NOT NULL,
    publisher TEXT NOT NULL REFERENCES user,
    published_at TEXT NOT NULL,
    hyper_file TEXT NOT NULL,
    hyper_bytes INTEGER NOT NULL,
    packaged_path TEXT NOT NULL,
    tds BLOB NOT NULL,
    PRIMARY KEY (datasource, number)
);
CREATE TABLE IF NOT EXISTS connection_settings (
    datasource TEXT PRIMARY KEY REFERENCES datasource ON DELETE CASCADE,
    server_address TEXT NOT NULL,
    server_port TEXT NOT NULL,
    user_name TEXT NOT NULL,
    embed_password INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS tag (
    datasource TEXT NOT NULL REFERENCES datasource ON DELETE CASCADE,
    label TEXT NOT NULL,
    PRIMARY KEY (datasource, label)
);
CREATE TABLE IF NOT EXISTS upload (
    luid TEXT PRIMARY KEY,
    site TEXT NOT NULL REFERENCES site,
    user TEXT NOT NULL REFERENCES user,
    expires_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS upload_block (
    upload TEXT NOT NULL REFERENCES upload ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    file TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (upload, sequence)
);
CREATE TABLE IF NOT EXISTS job (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    luid TEXT NOT NULL UNIQUE,
    site TEXT NOT NULL REFERENCES site,
    user TEXT NOT NULL REFERENCES user,
    kind TEXT NOT NULL,
    title TEXT NOT NULL,
    payload TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT,
    completed_at TEXT,
    notes TEXT
);
CREATE TABLE IF NOT EXISTS user_group (
    luid TEXT PRIMARY KEY,
    site TEXT NOT NULL REFERENCES site,
    name TEXT NOT NULL COLLATE NOCASE,
    UNIQUE (site, name)
);
-- The members of each group but that of all users.
CREATE TABLE IF NOT EXISTS group_member (
    user_group TEXT NOT NULL REFERENCES user_group ON DELETE CASCADE,
    user TEXT NOT NULL REFERENCES user,
    PRIMARY KEY (user_group, user)
);
CREATE TABLE IF NOT EXISTS quality_warning (
    luid TEXT PRIMARY KEY,
    datasource TEXT NOT NULL REFERENCES datasource ON DELETE CASCADE,
    owner TEXT NOT NULL REFERENCES user,
    type TEXT NOT NULL,
    message TEXT NOT NULL,
    is_active INTEGER NOT NULL,
    is_severe INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    UNIQUE (datasource, type)
);
-- What is in a project.
CREATE INDEX IF NOT EXISTS child_project ON project (parent);
CREATE INDEX IF NOT EXISTS project_datasource ON datasource (project);
-- The queue in its order, and what is not finished.
CREATE INDEX IF NOT EXISTS queued_job ON job (status, number);
CREATE INDEX IF NOT EXISTS unfinished_job ON job (completed_at, number);
-- The request ids of data updates, so that no request is carried out twice.
CREATE TABLE IF NOT EXISTS data_request (
    site TEXT NOT NULL REFERENCES site,
    request_id TEXT NOT NULL,
    job TEXT NOT NULL,
    received_at REAL NOT NULL,
    PRIMARY KEY (site, request_id)
);
-- Times at which the updated_at of a data source moves, if not at once.
CREATE TABLE IF NOT EXISTS late_stamp (
    datasource TEXT NOT NULL REFERENCES datasource ON DELETE CASCADE,
    due REAL NOT NULL
);
-- The scopes of the sessions of connected apps; other sessions have none, and need none.
CREATE TABLE IF NOT EXISTS session_scope (
    token_digest TEXT NOT NULL REFERENCES session ON DELETE CASCADE,
    scope TEXT NOT NULL,
    PRIMARY KEY (token_digest, scope)
);
-- Permission rules: about a project, the content to come in a project, or a data source. The grantee
-- is a user or a group.
CREATE TABLE IF NOT EXISTS rule (
    luid TEXT NOT NULL,
    subject TEXT NOT NULL,
    grantee TEXT NOT NULL,
    capability TEXT NOT NULL,
    mode TEXT NOT NULL,
    PRIMARY KEY (luid, subject, grantee, capability)
);
-- The sets of rules that exist, with rules or without.
CREATE TABLE IF NOT EXISTS rule_set (
    luid TEXT NOT NULL,
    subject TEXT NOT NULL,
    PRIMARY KEY (luid, subject)
);
CREATE TRIGGER IF NOT EXISTS rules_of_project AFTER DELETE ON project BEGIN
    DELETE FROM rule WHERE luid = OLD.luid;
    DELETE FROM rule_set WHERE luid = OLD.luid;
END;
CREATE TRIGGER IF NOT EXISTS rules_of_datasource AFTER DELETE ON datasource BEGIN
    DELETE FROM rule WHERE luid = OLD.luid;
    DELETE FROM rule_set WHERE luid = OLD.luid;
END;
CREATE TABLE IF NOT EXISTS refresh_task (
    luid TEXT PRIMARY KEY,
    site TEXT NOT NULL REFERENCES site,
    datasource TEXT NOT NULL REFERENCES datasource ON DELETE CASCADE,
    schedule TEXT NOT NULL,
    times TEXT NOT NULL
);
