package backend

import (
	"slices"
	"strings"
)

const (
	// charset is the only one that text is sent in.
	charset = "utf8mb4"
	// OfCaller is the value of a setting that is among the options of a pool.
	OfCaller = "as configured"
	// galeraNode and groupMode tell whether a server is a node of a cluster.
	galeraNode = "wsrep_on"
	groupMode  = "group_replication_single_primary_mode"
)

// Settings are the variables of MySQL 8.0 to 9.7 and of MariaDB 10.6 to 11.8 that a session inherits, or that it could
// be given by a DSN, and those of a server that change what a statement does. Those that are set are so in this order.
func Settings() []Setting {
	return slices.Concat(settingsOfText(), settingsOfTransactions(), settingsOfStatements(), settingsOfServers(), settingsWithoutEffect())
}

func settingsOfText() []Setting {
	return []Setting{
		{Names: "character_set_client character_set_connection character_set_results", Kind: SettingSet, Value: charset, Why: "in gbk, a backslash after a letter of a buyer's name is half of a letter, and the rest of the name is executed"},
		{Names: "collation_connection", Kind: SettingSet, Value: charset + "_general_ci", Why: "which literals are equal"},
		{Names: "sql_mode", Kind: SettingSet, Value: "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION", Why: "what quotes, backslashes and || are, whether what does not fit is cut, whether another engine takes InnoDB's place"},
		{Names: "old_mode", Kind: SettingSet, Value: "", Why: "what older versions made of casts and character sets"},
		{Names: "time_zone", Kind: SettingSet, Value: "+00:00", Why: "which time a text is"},
		{Names: "lc_messages", Kind: SettingSet, Value: "en_US", Why: "conflicts of a group are known by their words"},
	}
}

func settingsOfTransactions() []Setting {
	return []Setting{
		{Names: "autocommit", Kind: SettingSet, Value: "ON", Why: "single statements would never be committed"},
		{Names: "completion_type", Kind: SettingSet, Value: "NO_CHAIN", Why: "a commit would begin another transaction, or end the connection"},
		{Names: "transaction_isolation tx_isolation", Kind: SettingSet, Value: "READ-COMMITTED", Why: "gap locks, and reads that are old"},
		{Names: "innodb_snapshot_isolation", Kind: SettingSet, Value: "OFF", Why: "error 1020 where a row has changed"},
		{Names: "transaction_read_only tx_read_only", Kind: SettingSet, Value: "OFF", Why: "no transaction could write"},
		{Names: "innodb_lock_wait_timeout", Kind: SettingSet, Value: OfCaller, Why: "how long a row is waited for: database.lock_wait"},
		{Names: "wait_timeout", Kind: SettingSet, Value: OfCaller, Why: "how long a row stays locked by a replica that has stopped, unless the DSN says it"},
		{Names: "idle_transaction_timeout idle_readonly_transaction_timeout idle_write_transaction_timeout", Kind: SettingSet, Value: "0", Why: "would take the row from the holder of a lock"},
		{Names: "net_read_timeout", Kind: SettingSet, Value: "30", Why: "would end a connection in the middle of a statement"},
		{Names: "net_write_timeout", Kind: SettingSet, Value: "60", Why: "would end a connection in the middle of an answer"},
		{Names: "wsrep_dirty_reads", Kind: SettingSet, Value: "OFF", Why: "a node without its cluster would answer with old rows"},
		{Names: "wsrep_osu_method", Kind: SettingSet, Value: "TOI", Why: "one node alone would be migrated"},
		{Names: "wsrep_sync_wait group_replication_consistency", Kind: SettingNode, Why: "a node would answer with old rows; set on a node that others write beside"},
	}
}

func settingsOfStatements() []Setting {
	return []Setting{
		{Names: "unique_checks foreign_key_checks check_constraint_checks", Kind: SettingSet, Value: "ON", Why: "InnoDB may take a request id twice, and locks an empty table as a whole"},
		{Names: "sql_safe_updates", Kind: SettingSet, Value: "OFF", Why: "rejects an UPDATE without a key"},
		{Names: "sql_auto_is_null", Kind: SettingSet, Value: "OFF", Why: "IS NULL would find the last row that was inserted"},
		{Names: "sql_big_selects", Kind: SettingSet, Value: "ON", Why: "an audit of a large ledger would be rejected (max_join_size)"},
		{Names: "sql_select_limit", Kind: SettingSet, Value: "18446744073709551615", Why: "cuts what a SELECT finds"},
		{Names: "max_sort_length", Kind: SettingSet, Value: "1024", Why: "names that begin alike would be sorted in any order"},
		{Names: "max_statement_time", Kind: SettingSet, Value: "0.000000", Why: "the same"},
		{Names: "max_execution_time", Kind: SettingSet, Value: "0", Why: "would end a migration or an audit in its middle; every statement has its own time limit"},
		{Names: "query_cache_type", Kind: SettingSet, Value: "OFF", Why: "no answer is kept for the next purchase"},
		{Names: "default_storage_engine", Kind: SettingSet, Value: "InnoDB", Why: "the table of versions names none"},
	}
}

func settingsOfServers() []Setting {
	const leastPacket = 4 << 20
	const leastPage = 8 << 10
	return []Setting{
		{
			Names: "binlog_format", Kind: SettingChecked, Value: "ROW or MIXED, where log_bin is ON", Why: "InnoDB takes no write of READ COMMITTED into a log of statements",
			ok: func(value string, all map[string]string) bool { return value != "STATEMENT" || all["log_bin"] != "ON" },
		},
		{Names: "wsrep_forced_binlog_format", Kind: SettingChecked, Value: "NONE, ROW or MIXED", Why: "InnoDB takes no write of READ COMMITTED into a log of statements", ok: oneOf("NONE", "ROW", "MIXED")},
		{Names: "sql_log_bin", Kind: SettingChecked, Value: "ON", Why: "no replica and no backup would have the sales", ok: oneOf("ON")},
		{Names: "init_connect", Kind: SettingChecked, Value: "without a transaction, and without what is not allowed in a DSN", Why: "what it sets is set again, but for that", ok: leavesNothing},
		{Names: "max_allowed_packet", Kind: SettingChecked, Value: "4194304 or more", Why: "a batch of a thousand orders is one statement", ok: atLeast(leastPacket)},
		{
			Names: "innodb_page_size", Kind: SettingChecked, Value: "8192 or more", Why: "names of locks are keys of up to 1036 bytes, and MySQL takes 768 in a page of 4096; MariaDB takes them",
			ok: func(value string, all map[string]string) bool {
				_, isMariaDB := all["old_mode"]
				return isMariaDB || atLeast(leastPage)(value, all)
			},
		},
		{Names: "innodb_default_row_format", Kind: SettingChecked, Value: "DYNAMIC", Why: "names of locks are keys of up to 1036 bytes", ok: oneOf("dynamic")},
		{Names: "enforce_storage_engine", Kind: SettingChecked, Value: "InnoDB, or none", Why: "no other engine has transactions", ok: oneOf("", "InnoDB")},
		{
			Names: "disabled_storage_engines", Kind: SettingChecked, Value: "without InnoDB", Why: "no table could be made",
			ok: func(value string, _ map[string]string) bool {
				return !strings.Contains(strings.ToLower(value), "innodb")
			},
		},
		{Names: "system_versioning_asof", Kind: SettingChecked, Value: "DEFAULT", Why: "a table with versions would be read as it was", ok: oneOf("DEFAULT")},
		{Names: "innodb_flush_log_at_trx_commit", Kind: SettingAdvised, Value: "1", Why: "a power cut takes sales that were answered", ok: oneOf("1", "3")},
		{
			Names: "sync_binlog", Kind: SettingAdvised, Value: "1, where log_bin is ON", Why: "after a power cut, replicas may lack sales, or have more",
			ok: func(value string, all map[string]string) bool { return value == "1" || all["log_bin"] != "ON" },
		},
		{Names: "innodb_doublewrite", Kind: SettingAdvised, Value: "ON", Why: "a power cut may break a page", ok: oneOf("ON", "DETECT_AND_RECOVER")},
		{
			Names: galeraNode + " gtid_next gtid_owned gtid_seq_no gtid_domain_id wsrep_gtid_seq_no server_id skip_replication skip_parallel_replication" +
				" pseudo_slave_mode pseudo_replica_mode pseudo_thread_id sql_slave_skip_counter original_commit_timestamp original_server_version" +
				" immediate_server_version default_master_connection rbr_exec_mode require_row_format transaction_allow_batching",
			Kind: SettingExcluded, Why: "what replicas and other nodes get of a sale",
		},
		{Names: "insert_id last_insert_id identity timestamp rand_seed1 rand_seed2", Kind: SettingExcluded, Why: "the id of the next order, and the time"},
		{Names: "resultset_metadata use_secondary_engine statement_id show_create_table_skip_secondary_engine", Kind: SettingExcluded, Why: "what an answer has"},
		{Names: "error_count warning_count external_user proxy_user in_transaction last_gtid", Kind: SettingExcluded, Why: "nothing: they are read only"},
	}
}

// settingsWithoutEffect are of sessions, but for the last row. A name may end in *.
func settingsWithoutEffect() []Setting { //nolint:funlen // a table
	rows := []Setting{
		{Names: "auto_increment_increment auto_increment_offset", Why: "ids grow, and need not be neighbors; Galera sets them for each node"},
		{
			Names: "character_set_database character_set_server collation_database collation_server character_set_collations default_collation_for_utf8mb4",
			Why:   "every column of text names its character set, and its collation where it is compared",
		},
		{
			Names: "default_tmp_storage_engine internal_tmp_mem_storage_engine big_tables tmp_* max_tmp_tables max_tmp_session_space_usage max_heap_table_size storage_engine" +
				" external_table_*",
			Why: "no table is made without a name of its engine but that of the versions, and no temporary one",
		},
		{
			Names: "sql_require_primary_key sql_generate_invisible_primary_key show_gipk_in_create_table_and_information_schema explicit_defaults_for_timestamp" +
				" innodb_strict_mode innodb_compression_default innodb_default_encryption_key_id default_table_encryption column_compression_* innodb_ddl_*" +
				" innodb_tmpdir alter_algorithm old_alter_table sql_if_exists system_versioning_alter_history system_versioning_insert_history",
			Why: "how a table is made: each has a primary key, no TIMESTAMP without NULL, and no options but its engine",
		},
		{
			Names: "group_concat_max_len div_precision_increment windowing_use_high_precision default_week_format default_regex_flags lc_time_names block_encryption_mode" +
				" cte_max_recursion_depth max_recursive_iterations standard_compliant_cte max_points_in_geometry mhnsw_* innodb_ft_* updatable_views_with_limit" +
				" max_sp_recursion_depth restrict_fk_on_non_standard_key enable_cascade_triggers character_set_filesystem select_into_* xa_detach_on_prepare" +
				" generated_random_password_length old_passwords innodb_table_locks",
			Why: "no statement uses such a function, clause or object",
		},
		{
			Names: "optimizer_* eq_range_index_dive_limit expensive_subquery_limit in_predicate_conversion_threshold join_cache_level max_seeks_for_key max_join_size" +
				" max_length_for_sort_data max_rowid_filter_size range_optimizer_max_mem_size use_stat_tables histogram_* analyze_* information_schema_stats_expiry" +
				" enable_secondary_engine_statistics secondary_engine_cost_threshold new_mode old sql_buffer_result",
			Why: "which plan is chosen: statements that lock name their index, and answers are the same",
		},
		{
			Names: "bulk_insert_buffer_size join_buffer_* mrr_buffer_size net_buffer_length preload_buffer_size query_alloc_block_size query_prealloc_size" +
				" range_alloc_block_size read_buffer_size read_rnd_buffer_size rowid_merge_buff_size set_operations_buffer_size sort_buffer_size" +
				" transaction_alloc_block_size transaction_prealloc_size innodb_parallel_read_threads tcp_nodelay thread_pool_priority connection_memory_chunk_size" +
				" query_cache_strip_comments query_cache_wlock_invalidate",
			Why: "speed and memory",
		},
		{
			Names: "lock_wait_timeout connection_memory_limit global_connection_memory_tracking max_session_mem_used parser_max_mem_size max_user_connections",
			Why:   "a limit that is reached is an error that names it, and the statement has done nothing",
		},
		{
			Names: "log_* long_query_time min_examined_row_limit slow_query_log sql_log_off profiling* progress_report_time explain_* end_markers_in_json" +
				" note_verbosity sql_notes sql_warnings max_error_count sql_quote_show_create show_create_table_verbosity print_identified_with_as_hex terminology_use_previous",
			Why: "what is logged and explained",
		},
		{Names: "session_track_* redirect_url interactive_timeout net_retry_count", Why: "the driver does not ask for it"},
		{
			Names: "binlog_alter_two_phase binlog_annotate_row_events binlog_direct_non_transactional_updates binlog_row_* binlog_rows_query_log_events" +
				" binlog_transaction_compression* wsrep_causal_reads wsrep_retry_autocommit wsrep_trx_fragment_* max_relay_log_size",
			Why: "how a sale gets to replicas and nodes, which get it all the same",
		},
		{
			Names: "aria_* myisam_* deadlock_search_depth_* deadlock_timeout_* keep_files_on_create low_priority_updates max_delayed_threads max_insert_delayed_threads",
			Why:   "other engines",
		},
		{
			Names: "character_set_client_handshake secure_timestamp lower_case_table_names innodb_rollback_on_timeout innodb_autoinc_lock_mode" +
				" innodb_deadlock_detect automatic_sp_privileges performance_schema",
			Why: "of servers: names are in lower case; a transaction ends with its first error; the others are tried",
		},
	}
	for i := range rows {
		rows[i].Kind = SettingHarmless
	}
	return rows
}
