"""Bounds and times that are policy: how long something is waited for, how often it is looked at, how much is kept or told.

They are no settings: no user changes them; a test does, by `limited.limit`. A number that is a fact (of a format, of Ray, of
an algorithm) stands where it is used. Imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, init=False, eq=False, repr=False)  # what is left out takes 7 ms of each worker's start
class Limits:
    """The unit ends a name: seconds (`_s`), bytes, rows, a share; else a number of what is named."""

    # Watching a process: how long it waits
    gate_end_s: float = 30.0  # Longest wait of an ending process for our steps, as Ray itself waits.
    finalizers_s: float = 1.0  # The same for a step that runs finalizers of the app's: one of them may block.
    register_s: float = 30.0  # Longest wait of a process that joins for the watcher, which may begin after it.
    restarted_look_s: float = 0.05  # Pause before an actor that was started again says where it is.
    register_again_s: float = 3.0  # `register_s` where the watcher did not answer this process the last time.
    unwatched_s: float = 30.0  # Time that a worker runs unwatched before it asks again a watcher that gave no answer.
    settled_thread_s: float = 0.1  # A thread that has not run for this long counts as waiting.
    looked_at_threads: int = 1_000  # Threads whose last look is remembered.
    acknowledge_s: float = 1.0  # Time for which acknowledgements are gathered: they only free memory.
    starting_threads_s: float = 1.0  # Longest wait of a machine that must record for threads that start something.
    held_call_s: float = 60.0  # Longest time that a call of the next generation is held.
    stop_look_s: float = 0.05  # Period in which a process that is to stop looks for threads and tasks of the app's.
    wait_look_s: float = 0.25  # Period in which a wait looks whether it is to end.
    held_program_s: float = 600.0  # Longest time that the program is held while the app goes back by itself.
    fate_answer_s: float = 60.0  # Longest wait for the watcher to say what becomes of an actor.
    young_task_s: float = 1.0  # Age of a task at which its sender first asks whether it is over.
    stored_result_s: float = 0.2  # A result that has lain in the object store for this long is none that ends a wait.
    asking_share: float = 0.05  # Share of the time that is used for asking Ray about tasks, at most.
    asked_tasks: int = 1_000  # Tasks of one wait that are asked for their outcome.
    held_yield_s: float = 2.0  # A generator that stands this long at one `yield` may be one that Ray holds.
    deaf_watcher_s: float = 600.0  # A watcher that has heard nothing for this long is given up.
    deaf_watcher_pause_s: float = 1.0  # Pause before it is told again.
    idle_worker_s: float = 0.5  # A worker that has had nothing to do for this long takes part no more.
    last_mail_s: float = 2.0  # Longest wait of an ending process for its mail to arrive.
    machines_answer_s: float = 10.0  # Longest wait of the first send for what the watcher knows of the machines.
    collect_every_s: float = 30.0  # Shortest time between two collections of garbage that a process is asked for.
    dropped_actor_s: float = 3.0  # Time that an actor may take to end after its last handle was dropped.
    owned_refs_share: float = 0.02  # Share of its time that a process may spend on summing what it owns.
    export_s: float = 10.0  # Longest wait of a thread for another one that exports a function.
    cluster_store_s: float = 15.0  # Longest wait for the cluster's store.

    # Watching a process: how much it remembers and tells
    placement_groups: int = 1_000  # The latest placement groups of which it is remembered that they were made here.
    looked_at_refs: int = 10_000  # Refs whose objects are looked at, a microsecond for each.
    notebook_cells: int = 200  # Cells of a notebook that are told, those that ran last.
    passed_refs: int = 1_000  # Refs that were passed on and are remembered; of older ones the machine that answers.
    dropped_generators: int = 10_000  # Generators of dropped refs of which it is known that their items have come.
    named_holders: int = 3  # Holders of a lock that are named.
    raised_waits: int = 3  # Waits for one ref that end in the error; a program that begins them anew gets no more.
    open_waits_snapshots: int = 100  # Snapshots of which it is known which waits were open.
    searched_references: int = 20_000  # References that one search follows: tens of milliseconds of the app's loop.
    large_container_items: int = 100  # A container of more items is opened when nothing smaller is left to search.
    passed_calls: int = 100  # Calls that have got through a method and are told.
    raised_errors: int = 20  # Errors that nobody has read and are kept, the newest.
    read_errors: int = 1_000  # Errors that were read and are remembered, the newest.
    passed_on_errors: int = 1_000  # Refs that were passed on and may be read elsewhere, the newest.
    process_stacks: int = 50  # Stacks of one process that are told.
    locals_characters: int = 2_000  # Characters of the local variables of one frame.
    locals_ms: float = 20.0  # Longest time that the text of the variables of one frame may take.
    stack_frames: int = 50  # Frames of a stack that are shown: the innermost half, and the outermost.
    header_class_characters: int = 80  # Characters of a class's name in every header.

    # The watcher
    watcher_poll_s: float = 10.0  # Time that an unanswered long poll of a process is held.
    put_off_commands: int = 100  # Commands that may wait for a process to ask by itself.
    heard_s: float = 2.0  # Longest wait of an actor that starts again for all others to hear of it.
    watcher_end_s: float = 1.0  # Longest wait of a watcher that ends for each process to hear of it.
    heard_look_s: float = 0.005  # Period in which it looks whether they have.
    unpruned_calls: int = 1_000  # Calls that may stay in a sender's log until it asks by itself.
    unheard_s: float = 1.0  # Longest wait of a snapshot for machines that have never registered.
    whole_snapshots: int = 10  # Snapshots that are kept whole, where their calls may be told to end.
    node_looks: int = 100  # Snapshots for which it is kept what Ray told of nodes after them.
    deaths_look_s: float = 0.25  # Period in which the cluster's list of the dead is read while a snapshot is pending.
    stacks_answer_s: float = 3.0  # Longest wait for processes to tell their stacks; what comes later is left out.
    asked_workers: int = 20  # Workers that are asked what they run, where that is not known.
    unsure_death_s: float = 10.0  # Longest wait for Ray's list to say that an actor which others cannot reach has died.
    outlived_s: float = 10.0  # Longest wait for a process to say that it has outlived a snapshot; else none goes back.
    recovering_look_s: float = 0.1  # Period in which a recovery of watched actors looks whether it may go on.
    scheduling_s: float = 1.0  # Time that Ray may take to schedule what has room.
    garbage_look_s: float = 5.0  # After a wait of this length in which nothing acts, garbage is searched for handles.
    rolling_look_s: float = 0.05  # Period in which a restore looks whether all have taken a step.
    release_s: float = 5.0  # Longest wait of a restore that was given up for all to hear of it.
    ray_lists_s: float = 5.0  # Longest wait of a snapshot, before it begins, for Ray's lists of nodes and actors.
    idle_cpu_share: float = 0.05  # Share of a core above which a process is at work; one that waits takes 0.01.
    look_cpu_s: float = 0.015  # Processor time that a snapshot takes in a process beside recording, at most.
    idle_bytes_s: float = 1e6  # Bytes read in a second above which a process is at work.
    usage_look_s: float = 5.0  # Least time between two looks at what a process has used.
    measured_children: int = 100  # Children of one process whose work is looked at.
    happened_items: int = 20  # Events of one kind that are kept, the newest.
    happened_read: int = 10_000  # Errors that were read and are remembered by the watcher.
    restarts_s: float = 600.0  # An actor with `looping_restarts` within this time may be started again for ever,
    restarts_spare_s: float = 60.0  # until it has lived for twice its longest life among these, and this long beside.
    compared_ends: int = 5  # Ends of one actor that are compared.
    process_groups: int = 100  # Groups of ranks of one process that are told; where there are more, none are.
    unexplained_waits: int = 100  # Waits that are listed although it cannot be told what ends them.
    named_primitives: int = 1_000  # Locks, queues and the like that are named in one snapshot.
    delayed_call_s: float = 20.0  # A call that nothing known has kept from beginning for this long may never begin.
    poll_rounds: int = 5  # Equal answers in a row, at least,
    poll_s: float = 25.0  # and for so long, that make a poll; behind the snapshots that arm it.
    young_poll_rounds: int = 3  # So many,
    young_poll_s: float = 10.0  # for so long, are too many for an all-clear.
    poll_stopped_s: float = 5.0  # It has stopped if nothing was asked for this long, and for three rounds.
    poll_changes: int = 5  # After more answers that are no repeats their caller is left alone for a while,
    poll_pause_s: float = 10.0  # at most for this long.
    poll_questions: int = 10_000  # Methods of actors that one caller may ask in turn.
    poll_callers: int = 100  # Callers in one process whose answers are compared.
    poll_unread: int = 20_000  # Calls whose methods are remembered until their answers are read.
    poll_forgotten_s: float = 600.0  # A caller is forgotten that has read nothing for this long.
    poll_items: int = 100  # Items of an answer that is compared; ten characters of a text are one.
    compared_state_bytes: int = 100_000  # A larger state is not compared with an earlier one.
    plain_items: int = 10_000  # Items of an actor's state that are looked at for whether all are of built-in types.
    looping_restarts: int = 3  # An actor restarted this often, the last time within `looping_s`, may be so for ever.
    looping_s: float = 60.0  # The time for `looping_restarts`.
    read_lives: int = 100  # Actors of which it is read how they have ended.

    # What looks at, runs and ends a program
    greeting_s: float = 4.0  # Longest time to connect and to say that one speaks as a control store does.
    cluster_answer_s: float = 15.0  # Longest wait for each answer of a cluster that has greeted: it may be busy.
    node_probe_s: float = 20.0  # Longest wait for nodes to start a worker and answer; coverage names a later one.
    diagnosed_machines: int = 20  # Machines whose stacks are asked for, and waits that are listed.
    killed_writing_s: float = 10.0  # Longest time for writing what was seen after a signal: we may be killed later.
    raise_answer_s: float = 10.0  # Longest wait for the watcher to tell a process that it must raise.
    unwind_s: float = 5.0  # Time that a call that was told may stay in its core before another one of it is told.
    alarm_reports: int = 20  # Alarms of one program that have a report.
    report_s: float = 60.0  # Longest time for writing one report.
    reports_end_s: float = 180.0  # Longest time that reports may keep a program from ending.
    run_snapshot_s: float = 10.0  # Longest time of a snapshot of `run`; past half, actions are cut into.
    last_diagnosis_s: float = 5.0  # Longest time of the last snapshot of a program that ends in a deadlock.
    run_end_s: float = 120.0  # Longest time that writing what was seen may keep a program from ending.
    namesakes: int = 100  # Programs of one name that may run on a cluster.
    alarmed_every_s: float = 1.0  # Time between snapshots where an alarm has a consequence, if no other is given.

    # A host of machines
    broken_action_s: float = 60.0  # Longest wait of an action cut short by the loss of a host for the rollback.
    awaited_replies: int = 10_000  # Results that may be waited for in one host at a time; others wait in front of it.
    last_action_s: float = 2.0  # Longest wait of a rollback for actions under way; later ones act on old objects.
    early_look_s: float = 0.002  # Period in which something that came too early asks whether the host has started.
    ready_look_s: float = 0.005  # Period in which a host that is starting looks whether its machines are there.
    state_parts: int = 10_000  # A state of more parts is not looked through.
    container_items: int = 64  # A container of more values is looked through by itself.
    streamed_copies: int = 20_000  # Copies that are written together: they take ten times the room of their rows.
    copied_one_by_one_s: float = 0.0005  # Time for which machines are copied before the core is asked whether to go on.
    held_looks: int = 20  # Looks at a machine that is held, within the time that it may be.
    copy_slice_s: float = 0.001  # Time for which machines are copied in one go between two actions.
    copy_pause_s: float = 0.00005  # Time for which an idle host gives its lock to others between two slices.
    copy_ahead_pause_s: float = 0.005  # The same while machines are copied faster than rows are written.
    copied_states: int = 128  # Small states whose texts are made at once, in some 0.2 ms.
    guard_look_s: float = 0.02  # Period in which the guard looks while a snapshot is open.
    markers_s: float = 0.005  # Longest wait of a report for the last markers, so that it is the only one.
    busy_markers_s: float = 0.05  # The same where messages go round: those on their way belong to the snapshot.
    late_messages_s: float = 0.02  # Time for which white messages after a report are gathered without all markers.
    resting_bytes: int = 2_000_000_000  # While rows have more, no more machines are put to rest.
    resting_chunks: int = 32  # A column of more pieces is put together anew.
    packed_rows: int = 500  # Fewer rows are read as fast as what is remembered of them is found.
    hidden_share: float = 0.25  # Share of rows whose machines rest no more at which columns are made anew.
    switch_s: float = 0.0003  # Time that a thread keeps the interpreter when the action thread or event loop wants it.
    cached_state_bytes: int = 64_000  # A longer state, with its pickle where checkpoints are kept, is not kept.
    cached_states_bytes: int = 200_000_000  # Bound of the kept texts and pickles of one host's machines together.
    remembered_calls: int = 100_000  # A wait for a call before the latest of these is one for something foreign.
    trace_entries: int = 5_000  # Actions that a process keeps before it ships them, with or without a snapshot.
    trace_error_characters: int = 10_000  # Characters of an error's text that are logged.
    link_batches: int = 2  # Batches of one link that may be on their way; the rest gathers meanwhile.
    timer_s: float = 1e9  # The longest timer of `send_after`.
    fitting_shapes: int = 1_000  # Shapes of arguments that are remembered for one method.
    piece_bytes: int = 90_000  # Size of a piece; Ray's `max_direct_call_object_size` is 100 KB with what it adds.
    pieces_bytes: int = 1_500_000  # More go through the object store; Ray's bound of a call is 10 MB.

    # Columns of a snapshot
    spare_names: int = 1_000  # A column with this many more than twice as many names as rows is made anew.
    cached_column_rows: int = 10_000  # Columns of more rows are made anew each time.
    column_messages: int = 65_536  # Messages of which columns are made in one go, some 25 ms.
    packed_arguments: int = 8  # Fewer arguments of one kind are written one by one.
    special_arguments: int = 512  # Arguments that are written one by one for one that must be looked at by itself.
    brought_bytes: int = 64_000_000  # Size of what was read and is remembered, beside what the last snapshot has.

    # The service, the driver and the session
    first_share_s: float = 1.0  # Wait of a clock that goes by a share, before the first snapshot is complete.
    slowest_share_s: float = 600.0  # The slowest that it goes by a share.
    forgetting_share: float = 0.25  # It forgets that a snapshot took more by this part with each that takes less.
    unjudged_snapshots: int = 100  # With as many not judged, one that a program asks for waits: a bound of memory.
    last_again_s: float = 0.1  # Pause before a last snapshot is taken once more because it cannot be restored.
    deadline_look_s: float = 0.05  # Shortest time between two looks at deadlines.
    analyst_look_s: float = 0.05  # Period in which an analyst that is being started anew is asked.
    complete_numbers: int = 10_000  # The latest numbers of complete snapshots that are remembered.
    last_in_line_s: float = 1.0  # Longest wait of the end for an analyst that takes what was last in the line.
    orders_poll_s: float = 10.0  # Time that an unanswered long poll of a host is held.
    lazy_order_s: float = 1.0  # Time for which a host need not hear that a snapshot is complete, to free memory.
    recovery_look_s: float = 1.0  # Period in which a recovery of machines looks whether all have taken a step.
    told_snapshots: int = 100  # Snapshots of which the service remembers whether all machines were told.
    second_close_s: float = 180.0  # Longest wait of a second call of `close` for the first.
    last_arrival_s: float = 2.0  # Time that an actor that is to be ended may take to take in what it was sent before.
    again_s: float = 0.05  # Period in which a service or a process that is being started anew is asked.
    held_driver_look_s: float = 0.5  # Period in which a driver that is held looks whether the system has stopped.
    spawn_attempts: int = 20  # Attempts of a spawn while the system is rolled back.
    verdicts_poll_s: float = 0.5  # Time that the analyst keeps an unanswered question.
    subscriber_again_s: float = 0.1  # Period in which a program asks an analyst that is being started anew.
    heard_verdicts: int = 10_000  # Verdicts that are remembered as handed out: more than are ever evaluated again.

    # The analyst
    waiting_snapshots: int = 4  # Snapshots that may wait to be evaluated; with more the service starts none.
    evaluated_look_s: float = 0.02  # Period in which a caller's wait looks at what was evaluated and written.
    commit_again_s: float = 0.5  # Pause before a commit that has failed is tried again while a caller waits for it.
    warm_up_s: float = 30.0  # Longest wait of an analyst for what detectors load beforehand.
    analyst_niceness: int = 4  # Niceness of the threads that evaluate and write: machines come first.
    long_calls: int = 4  # Calls that take their time and are answered at once.
    listed_marks: int = 1_000  # The latest snapshots of which it is known when the history lists them.
    warm_up_machines: int = 1_000  # For this many machines a detector loads nothing that it does not load for two.
    memory_checkpoints: int = 32  # Checkpoints that are kept without a history: these can be restored.
    recovery_checkpoints: int = 2  # Checkpoints that are kept in memory beside a history: a recovery needs them.
    memory_checkpoints_bytes: int = 256_000_000  # If they take more, fewer are kept, but at least the last two.
    seen_snapshots: int = 1_000  # Snapshots of which it is remembered whether they can be restored.
    late_verdicts: int = 1_000  # Verdicts that are kept for a caller that asks late; a subscriber gets all.

    # Writing a history
    flush_s: float = 5.0  # Time after which rows are written, whatever they take.
    flush_bytes: int = 64_000_000  # Size at which they are written before.
    unwritten_bytes: int = 256_000_000  # A writer with more that is not written makes others wait.
    merge_every_commits: int = 64  # Commits after which small files are looked for.
    commit_attempts: int = 100  # Attempts of a commit that adds rows, where others commit, too.
    replace_attempts: int = 1_000  # Attempts of a commit that replaces files.
    group_rows: int = 8_192  # Rows that are read or skipped together, about; large snapshots begin their own.
    group_bytes: int = 64 * 1_024 * 1_024  # Bound of such a group.
    page_bytes: int = 64 * 1_024  # Size of a page in a file.
    lease_s: float = 30.0  # A writer whose record stays the same for this long has died.
    renew_lease_s: float = 5.0  # Period in which a writer renews its record.
    writer_record_bytes: int = 16_000_000  # No record of ours is larger; a file that a stranger made may be.
    remembered_shapes: int = 100_000  # Shapes and places of states that a writer remembers.
    sorted_bytes: int = 1_000_000_000  # Larger tables are not sorted.
    checkpoint_bytes: int = 16 << 30  # No checkpoint of ours is larger; a file that a stranger made may be.
    checkpoint_header_bytes: int = 16 << 20  # No header of one is larger.
    shortest_key_characters: int = 16  # A shorter key of checkpoints is refused.
    key_file_bytes: int = 65_536  # A larger file holds no key.

    # Keeping and reading a history
    read_bytes: int = 128_000_000  # Rows that are read together take at most this,
    read_bytes_per_byte: int = 200  # or this for each byte of their files if that is more.
    read_rows: int = 400_000  # They are at most as many,
    read_rows_per_byte: int = 1  # or this many for each byte of their files if that is more.
    suspicious_bytes: int = 1_000_000  # A column whose repeated values may take more is looked at first.
    looked_at_groups: int = 64  # Groups of rows that are looked at together.
    full_block_rows: int = 4_000_000  # A block of as many rows is finished: later compactions leave it.
    block_rows: int = 16_000_000  # The most rows in a block.
    unordered_block_rows: int = 1_000_000  # The same where a table is not in `SPREAD_BY`: they are sorted all at once.
    tile_rows: int = 65_536  # The fewest rows in a tile.
    tiles: int = 64  # The most tiles in a block.
    small_file_rows: int = 65_536  # A file of fewer rows is small.
    merged_files: int = 64  # A writer merges small files once there are as many of a day.
    chunk_rows: int = 262_144  # Rows that are compacted together,
    chunk_bytes: int = 256_000_000  # and their size.
    compaction_attempts: int = 20  # Attempts of a compaction while others commit.
    read_attempts: int = 4  # Attempts to read what others replace meanwhile.
    mirror_bytes: int = 50_000_000_000  # Size of a store's copy, if the disk keeps `spare_disk_bytes`.
    spare_disk_bytes: int = 1_000_000_000  # What a copy leaves free on the disk.
    whole_object_bytes: int = 1_000_000  # An object of this size is read at once.
    object_piece_bytes: int = 8_000_000  # A larger one is read in pieces of this size.
    spooled_bytes: int = 32_000_000  # A larger object that is written is a file first.
    store_connect_s: int = 5  # Longest time for connecting to a store.
    store_request_s: int = 60  # Longest time for one request to it.
    store_retries: int = 3  # Retries of a request.
    store_retry_s: int = 60  # Longest time for all of them.
    log_bytes: int = 64_000_000  # The largest commit in a log that is read.
    files_at_once: int = 256  # Files that are opened together.
    stray_file_hours: int = 24  # A file of an unknown writer that no commit names may belong to a commit for this long.
    verified_rows: int = 200_000  # Rows with states or arguments that are verified together.
    verified_narrow_rows: int = 1_000_000  # The same where neither are read; batches read shared groups again.
    verified_snapshots: int = 500  # Snapshots that are verified together.
    told_problems: int = 20  # Problems of one kind that are told.
    parsed_rows: int = 10_000  # Rows whose texts are parsed together.
    folder_depth: int = 32  # No folder of a history lies deeper below it.

    # Looking from outside at a program that nobody prepared
    py_spy_s: float = 20.0  # Longest time of py-spy for one process.
    thread_glances: int = 12  # Looks at a thread to see whether it sleeps.
    idle_holder_s: float = 20.0  # In a shorter wait Ray may yet find the last handle of an idle actor in garbage.
    standing_core_share: float = 0.05  # A process that takes more of a core acts; Ray's own threads take a tenth.
    apart_s: float = 3.0  # Time between two looks: task events come about a second late.
    node_answer_s: float = 30.0  # Longest wait for a node in addition: it may have to start a worker, and reads stacks.
    node_processes: int = 1_000  # Processes of one node that are looked at.
    node_stacks: int = 48  # Processes of one node whose stacks are read.
    autoscaler_answer_s: float = 15.0  # Longest wait for the cluster's store to tell of its autoscaler.
    told_targets: int = 4  # Machines that are told of those that one waits for.
    json_rows: int = 10_000  # Items of each list in a row of `--json`.

    # What a verdict names
    listed: int = 100  # Items of a kind that are listed in evidence, beside their number.
    breakers: int = 20  # Machines that are named because they might break a deadlock.
    told_members: int = 1_000  # Members of a deadlock that are told.
    told_cores: int = 100  # Cores of deadlocks that are told.
    named_members: int = 5  # Members that a sentence names.
    cycle_hops: int = 8  # Steps of a cycle that are told.
    advice: int = 20  # Changes that are advised.
    behind_members: int = 1_000  # Machines behind the members that are looked at for advice.
    holding_rows: int = 5_000  # Rows that are added up together,
    holding_bytes: int = 8_000_000  # the size of their texts,
    holding_lines: int = 200_000  # lines of totals that are read together,
    holding_states: int = 16  # and states of one machine.
    pending_lines: int = 20  # Kinds of calls that have not begun and are told.
    queued_lines: int = 10  # Lines about calls that wait in front of actors.
    named_shares: int = 3  # Holders of a resource that are named.
    store_owners: int = 5  # Owners that are named of each object store.
    named_machines: int = 10  # Machines that are named because they act, or wait.
    named_running: int = 3  # Machines among them whose line is told.
    named_systems: int = 10  # Systems of a history that are named.


LIMITS = Limits()
