-- From format 2 to 3: commits that must not come any more.

-- A commit that must not come any more: its answer was lost, and when it was looked for, it was not there.
CREATE TABLE dl_void_commits (
    commit_id  uuid NOT NULL,
    voided_at  bigint NOT NULL
);
