//! `cargo xtask mutants`: breaks the core on purpose, one fault at a time, and demands that a named test notices each.
//!
//! To add a mutant: append a [`Mutant`] to [`MUTANTS`]. `find` must stand exactly once in `file` (a path below `crates/core/src`);
//! it is replaced by `put` in a copy of the crate under `target/mutants`. `test` is the full name of the test in
//! `crates/core/tests/laws` that must fail then; it must pass without the mutant. When a change of the core makes `find`
//! ambiguous or absent the task says so and fails: write the mutant anew, do not drop it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::repository;
use crate::step;

/// One fault, and who must notice it.
struct Mutant {
    name: &'static str,
    file: &'static str,
    find: &'static str,
    put: &'static str,
    test: &'static str,
}

/// What became of a mutant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Killed,
    Survived,
    /// It does not compile or its test does not exist: nothing is proved.
    Broken,
}

/// Runs every mutant and prints the table.
///
/// # Errors
/// When a mutant survives or cannot be tried, or a named test fails without any mutant.
pub(crate) fn run() -> Result<(), String> {
    let copy = Copy::make()?;
    for mutant in MUTANTS {
        copy.check(mutant)?;
    }
    copy.prove_healthy()?;
    let mut fates = Vec::new();
    for mutant in MUTANTS {
        let fate = copy.fate(mutant)?;
        println!("{:<9} {:<58} {}", fate.name(), mutant.name, mutant.test);
        fates.push(fate);
    }
    let killed = fates.iter().filter(|fate| **fate == Fate::Killed).count();
    println!("\n{killed} of {} mutants killed", fates.len());
    if killed == fates.len() { Ok(()) } else { Err("mutants are left: see the table above".to_owned()) }
}

/// The core in a workspace of its own under `target/mutants`.
struct Copy {
    root: PathBuf,
}

impl Copy {
    fn make() -> Result<Self, String> {
        let source = repository::root();
        let root = source.join("target").join("mutants");
        let core = root.join("crates").join("core");
        if core.exists() {
            fs::remove_dir_all(&core).map_err(|error| told(&core, &error))?;
        }
        copy_tree(&source.join("crates").join("core"), &core)?;
        let manifest = alone(&read(&source.join("Cargo.toml"))?)?;
        write(&root.join("Cargo.toml"), &manifest)?;
        write(&root.join("Cargo.lock"), &read(&source.join("Cargo.lock"))?)?;
        Ok(Self { root })
    }

    /// The text to break stands where it should, exactly once.
    fn check(&self, mutant: &Mutant) -> Result<(), String> {
        let found = read(&self.file(mutant))?.matches(mutant.find).count();
        if found == 1 {
            return Ok(());
        }
        Err(format!(
            "mutant `{}`: its text stands {found} times in crates/core/src/{}, not once; write it anew in xtask/src/mutants.rs",
            mutant.name, mutant.file
        ))
    }

    /// Every named test exists and passes as long as nothing is broken.
    fn prove_healthy(&self) -> Result<(), String> {
        let mut tests: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.test).collect();
        tests.sort_unstable();
        tests.dedup();
        let output = self.test(&tests)?;
        let wanted = format!("{} passed", tests.len());
        if output.status.success() && shown(&output.stdout).contains(&wanted) {
            println!("{} named tests pass on the healthy core", tests.len());
            return Ok(());
        }
        Err(format!(
            "not all {} named tests exist and pass on the healthy core:\n{}{}",
            tests.len(),
            shown(&output.stdout),
            shown(&output.stderr)
        ))
    }

    fn fate(&self, mutant: &Mutant) -> Result<Fate, String> {
        let path = self.file(mutant);
        let healthy = read(&path)?;
        write(&path, &healthy.replacen(mutant.find, mutant.put, 1))?;
        let output = self.test(&[mutant.test]);
        write(&path, &healthy)?;
        let output = output?;
        let text = shown(&output.stdout);
        Ok(if output.status.success() && text.contains("1 passed") {
            Fate::Survived
        } else if text.contains("1 failed") {
            Fate::Killed
        } else {
            println!("{text}{}", shown(&output.stderr));
            Fate::Broken
        })
    }

    fn test(&self, names: &[&str]) -> Result<Output, String> {
        let mut command: Command = step::cargo(&[
            "test",
            "--offline",
            "--package",
            "fairlane-core",
            "--test",
            "laws",
            "--",
            "--exact",
        ]);
        command
            .args(names)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", self.root.join("target"))
            .output()
            .map_err(|error| format!("cannot start cargo for the mutants: {error}"))
    }

    fn file(&self, mutant: &Mutant) -> PathBuf {
        self.root.join("crates").join("core").join("src").join(mutant.file)
    }
}

impl Fate {
    const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Survived => "SURVIVED",
            Self::Broken => "BROKEN",
        }
    }
}

/// The workspace's manifest with the core as its only member.
fn alone(manifest: &str) -> Result<String, String> {
    let kept: Vec<&str> = manifest
        .lines()
        .map(|line| if line.starts_with("members") { "members = [\"crates/core\"]" } else { line })
        .filter(|line| !line.starts_with("default-members"))
        .collect();
    if kept.iter().filter(|line| line.starts_with("members")).count() == 1 {
        return Ok(kept.join("\n") + "\n");
    }
    Err("Cargo.toml: expected one line `members = [..]`".to_owned())
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    fs::create_dir_all(to).map_err(|error| told(to, &error))?;
    for entry in fs::read_dir(from).map_err(|error| told(from, &error))? {
        let entry = entry.map_err(|error| told(from, &error))?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_tree(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(|error| told(&path, &error))?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| told(path, &error))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| told(path, &error))
}

fn told(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a refusal debits",
        file: "ledger.rs",
        find: "if let Verdict::Granted { shadowed } = &verdict {",
        put: "if let Verdict::Refused(_) = &verdict {
            for charge in &reservation.charges {
                let cell = self.cell(charge.cell);
                cell.bucket.debit(&cell.shape, charge.reserved);
            }
        }
        if let Verdict::Granted { shadowed } = &verdict {",
        test: "cases::a08_refusals_cost_nothing",
    },
    Mutant {
        name: "a refund is given twice",
        file: "ledger.rs",
        find: "cell.bucket.credit(&cell.shape, (unused - never_taken).max(Amount::ZERO));",
        put: "cell.bucket.credit(&cell.shape, (unused - never_taken).max(Amount::ZERO));
            cell.bucket.credit(&cell.shape, (unused - never_taken).max(Amount::ZERO));",
        test: "charging::reserve_takes_input_and_bound_and_gives_the_rest_back",
    },
    Mutant {
        name: "a second settlement refunds again",
        file: "ledger.rs",
        find: "let Some(outstanding) = self.outstanding.remove(&settlement.id) else {",
        put: "let Some(outstanding) = self.outstanding.get(&settlement.id).cloned() else {",
        test: "ledger_laws::l4_outstanding_is_the_sum_of_open_reservations_and_a_second_settlement_changes_nothing",
    },
    Mutant {
        name: "a refund lifts above the capacity",
        file: "bucket.rs",
        find: "let reached = wanted.min(shape.capacity.max(self.level));",
        put: "let reached = wanted;",
        test: "cases::a18_the_unused_part_of_every_stream_comes_back",
    },
    Mutant {
        name: "a refill lifts above the capacity",
        file: "bucket.rs",
        find: "if elapsed >= to_full {",
        put: "if false && elapsed >= to_full {",
        test: "ledger_laws::l1_a_level_stays_between_the_deepest_debt_and_the_brim",
    },
    Mutant {
        name: "a refused tenant debits the shared bucket",
        file: "ledger.rs",
        find: "        if let Verdict::Granted { shadowed } = &verdict {
            for (place",
        put: "        if matches!(verdict, Verdict::Refused(_)) {
            for charge in reservation.charges.iter().filter(|charge| charge.limit.owner.is_shared()) {
                let cell = self.cell(charge.cell);
                cell.bucket.debit(&cell.shape, charge.reserved);
            }
        }
        if let Verdict::Granted { shadowed } = &verdict {
            for (place",
        test: "cases::a09_a_refused_tenant_never_drains_the_shared_limit",
    },
    Mutant {
        name: "`>` where `>=` is meant",
        file: "bucket.rs",
        find: "if self.level >= cost {",
        put: "if self.level == cost {
            return shape.rate.span_for(Amount(1), self.remainder);
        }
        if self.level > cost {",
        test: "cases::a05_at_exactly_the_limit_one_passes_and_the_next_does_not",
    },
    Mutant {
        name: "a cost of exactly the capacity never fits",
        file: "gate/arrive.rs",
        find: "plan.charges.iter().find(|charge| !charge.shadow && charge.reserved > charge.shape.capacity)",
        put: "plan.charges.iter().find(|charge| !charge.shadow && charge.reserved >= charge.shape.capacity)",
        test: "cases::a07_a_cost_above_the_bucket_is_refused_at_once_for_good",
    },
    Mutant {
        name: "the wait is one step short",
        file: "bucket.rs",
        find: "let span = missing.div_ceil(u128::from(self.numerator));
        Some(",
        put: "let span = missing / u128::from(self.numerator);
        Some(",
        test: "ledger_laws::l6_a_refused_request_is_admitted_after_exactly_the_wait_and_not_a_microsecond_before",
    },
    Mutant {
        name: "the remainder of a rate is lost",
        file: "bucket.rs",
        find: "self.level += Amount(earned);
        self.remainder = remainder;",
        put: "self.level += Amount(earned);
        self.remainder = remainder * 0;",
        test: "ledger_laws::l5_exact_rationals_give_the_same_decision_and_the_same_wait",
    },
    Mutant {
        name: "a clock that goes back and comes again refills twice",
        file: "bucket.rs",
        find: "if elapsed == Micros::ZERO {
            return;
        }
        self.time = now;",
        put: "self.time = now;",
        test: "ledger_laws::l9_a_clock_that_goes_back_adds_nothing",
    },
    Mutant {
        name: "debt has no bound",
        file: "bucket.rs",
        find: "let reached = wanted.max(floor.min(self.level));",
        put: "let reached = wanted.max(floor.min(wanted));",
        test: "charging::what_passes_the_deepest_debt_is_forgiven_and_never_given_back",
    },
    Mutant {
        name: "what was forgiven is refunded",
        file: "ledger.rs",
        find: "outstanding.forgiven.push((charge.cell, debited.forgiven));",
        put: "outstanding.forgiven.push((charge.cell, Amount::ZERO));",
        test: "charging::what_passes_the_deepest_debt_is_forgiven_and_never_given_back",
    },
    Mutant {
        name: "a reload refills",
        file: "bucket.rs",
        find: "self.refill(old, now);
        if old == new {
            return;
        }",
        put: "self.refill(old, now);
        self.level = new.capacity;",
        test: "reload::b11_reloading_the_same_configuration_refills_nothing",
    },
    Mutant {
        name: "a changed count forgets what is used",
        file: "bucket.rs",
        find: "self.level += new.capacity - old.capacity;",
        put: "self.level += Amount::ZERO;",
        test: "reload::a_rejecting_concurrency_limit_counts_those_in_flight_under_its_changed_number",
    },
    Mutant {
        name: "a promise lengthens another tenant's wait",
        file: "gate/arrive.rs",
        find: "let told = self.promises.tell(charge.cell, &charge.shape, charge.reserved, exact, now);",
        put: "let cell = CellId { index: 0, epoch: 0 };
                let told = self.promises.tell(cell, &charge.shape, charge.reserved, exact, now);",
        test: "promises::a_refused_flood_lengthens_no_wait_and_changes_no_admission_of_another_tenant",
    },
    Mutant {
        name: "the waits of a shared limit are promised",
        file: "gate/arrive.rs",
        find: "(_, Some(exact)) if charge.limit.owner.is_shared() => {",
        put: "(_, Some(exact)) if false && charge.limit.owner.is_shared() => {",
        test: "promises::a_shared_limit_tells_the_exact_wait_to_everybody",
    },
    Mutant {
        name: "nobody waits behind a promise",
        file: "promises.rs",
        find: "let wait = Micros(exact.0.saturating_add(behind.0));",
        put: "let wait = Micros(exact.0.saturating_add(behind.0 * 0));",
        test: "promises::clients_that_come_back_when_told_are_all_admitted_then",
    },
    Mutant {
        name: "a step is not charged",
        file: "charge.rs",
        find: "            | Dimension::RunSteps
            | Dimension::NewRuns => Amount::ONE,",
        put: "            | Dimension::NewRuns => Amount::ONE,
            Dimension::RunSteps => Amount::ZERO,",
        test: "runs::l12_a_run_uses_its_budget_and_its_overruns_at_most_and_makes_its_steps_at_most",
    },
    Mutant {
        name: "a begun run is not charged",
        file: "gate/arrive.rs",
        find: "if begins_run {
            self.directory.new_runs",
        put: "if begins_run && false {
            self.directory.new_runs",
        test: "runs::l12_changing_the_id_with_each_request_begins_no_more_runs_than_the_rate_and_the_live_bound",
    },
    Mutant {
        name: "runs are begun for nothing",
        file: "gate/ending.rs",
        find: "Dimension::NewRuns => returned == Returned::UnitsAndRun,",
        put: "Dimension::NewRuns => returned != Returned::Tokens,",
        test: "runs::beginning_runs_for_nothing_does_not_evade_their_rate",
    },
    Mutant {
        name: "live runs have no bound",
        file: "gate/arrive.rs",
        find: "subjects.live_runs(arrival.tenant) >= runs.max_live",
        put: "subjects.live_runs(arrival.tenant) > runs.max_live",
        test: "runs::a_run_ends_after_its_idle_time_and_its_place_is_told",
    },
    Mutant {
        name: "an end user is forgotten before the bucket is full",
        file: "directory.rs",
        find: "longest = longest.max(block.shape.rate.span_of(depth));",
        put: "longest = longest.max(block.shape.rate.span_of(depth) / 8);",
        test: "subjects::an_end_user_is_remembered_until_the_bucket_is_full_again",
    },
    Mutant {
        name: "end users have no bound",
        file: "subjects.rs",
        find: "if self.end_users < self.end_users_max || self.is_known(&place) {",
        put: "if self.end_users <= usize::MAX || self.is_known(&place) {",
        test: "subjects::b15_a_million_end_users_stay_bounded_and_an_active_bucket_is_never_forgotten",
    },
    Mutant {
        name: "a wake-up is lost: a freed slot tells nobody",
        file: "gate/slots.rs",
        find: "self.freed(id, cell);",
        put: "let _ = cell;",
        test: "queue_model::requests_start_in_order_of_arrival_among_those_with_a_free_slot_and_no_wake_up_is_lost",
    },
    Mutant {
        name: "a wake-up is lost: an offered slot goes with who leaves",
        file: "gate/ending.rs",
        find: "self.offer_slots(&request.slots);",
        put: "",
        test: "queue_model::requests_start_in_order_of_arrival_among_those_with_a_free_slot_and_no_wake_up_is_lost",
    },
    Mutant {
        name: "a wake-up is lost: another limit's slot is not passed on",
        file: "gate/slots.rs",
        find: "self.offer_slots(&others);",
        put: "let _ = others;",
        test: "queue::a_slot_that_frees_goes_past_one_that_is_held_elsewhere",
    },
    Mutant {
        name: "a wake-up is lost: the last slot taken in another pool",
        file: "gate/slots.rs",
        find: "self.wake_others(pool, id);",
        put: "let _ = pool;",
        test: "queue_model::slots_are_never_exceeded_nor_left_idle_across_two_pools_and_a_late_store",
    },
    Mutant {
        name: "a concurrency limit lets one more in",
        file: "gate/slots.rs",
        find: "self.slots_used.get(&slot.cell).copied().unwrap_or(0) >= slot.limit",
        put: "self.slots_used.get(&slot.cell).copied().unwrap_or(0) > slot.limit",
        test: "scopes::concurrency_of_every_scope_refuses_or_queues_exactly_above_its_number",
    },
    Mutant {
        name: "a bounce loses its place in line",
        file: "gate/waiting.rs",
        find: "        let Some((pool, _)) = self.line_up(id) else { return };",
        put: "        if let Some(request) = self.requests.get_mut(&id) {
            request.turn.0 += 1_000_000;
        }
        let Some((pool, _)) = self.line_up(id) else { return };",
        test: "endings::a_bounce_goes_back_to_its_place_uncharged_and_waits_as_long_as_asked",
    },
    Mutant {
        name: "a failed try keeps the backend's reservation",
        file: "gate/dispatch.rs",
        find: "self.settle_dispatch(id, report, now);",
        put: "",
        test: "endings::a_failed_try_is_not_charged_to_the_backend_that_failed",
    },
    Mutant {
        name: "leaving the queue keeps the reservation",
        file: "gate/ending.rs",
        find: "Stage::Queued(_) => self.close(id, &Report { answer: Answer::Nothing, ..*report }, now),",
        put: "Stage::Queued(_) => self.close(id, report, now),",
        test: "cases::c04_a_client_that_left_the_queue_is_never_sent",
    },
    Mutant {
        name: "who leaves while the store thinks is sent all the same",
        file: "gate/arrive.rs",
        find: "if request.gone {
            return self.close(id, &Report::client_gone(), now);
        }
        if self.draining",
        put: "if self.draining",
        test: "endings::leaving_while_the_store_thinks_gives_everything_back",
    },
    Mutant {
        name: "a wait ends a moment late",
        file: "gate.rs",
        find: "if moment > now {
                break;
            }",
        put: "if moment >= now {
                break;
            }",
        test: "queue::a_wait_ends_at_exactly_its_moment",
    },
    Mutant {
        name: "another overtakes while the store decides a dispatch",
        file: "gate/dispatch.rs",
        find: "if order.is_empty() || state.ruling.is_some() {",
        put: "if order.is_empty() {",
        test: "queue::a_late_store_keeps_the_order_of_dispatch",
    },
    Mutant {
        name: "the queue holds one more than its bound",
        file: "gate/waiting.rs",
        find: "size.requests > class.queue_requests_max",
        put: "size.requests > class.queue_requests_max + 1",
        test: "cases::c10_the_bound_of_the_queue_counts_the_same_idle_and_loaded",
    },
    Mutant {
        name: "cached tokens are free",
        file: "charge.rs",
        find: "Dimension::Tokens | Dimension::RunBudget => millis_sum(&[
                (uncached, ONE_MILLIS),
                (cached, cached_weight_millis),",
        put: "Dimension::Tokens | Dimension::RunBudget => millis_sum(&[
                (uncached, ONE_MILLIS),
                (cached, cached_weight_millis * 0),",
        test: "cases::a21_cached_tokens_weigh_what_the_policy_says",
    },
    Mutant {
        name: "the prompt is not reserved",
        file: "charge.rs",
        find: "self.input.plus(self.output)",
        put: "self.output",
        test: "cases::a04_the_prompt_is_reserved_with_the_output",
    },
    Mutant {
        name: "unreported usage is nothing",
        file: "gate/ending.rs",
        find: "let output = cut(output.unwrap_or_else(|| self.output_unreported(request, report, now)));",
        put: "let output = cut(output.unwrap_or_default());",
        test: "charging::usage_that_nobody_counted_is_the_least_of_bound_mean_and_measured_pace",
    },
    Mutant {
        name: "nobody is lifted on return",
        file: "schedule/tree.rs",
        find: "if lift == Lift::Least
            && let",
        put: "if lift == Lift::Done
            && let",
        test: "fairness::s4_a_tenant_that_comes_back_has_saved_nothing_up",
    },
    Mutant {
        name: "a tenant is not lifted when its quota has a slot again",
        file: "schedule.rs",
        find: "self.tree.refresh(*flow, &self.entries, Lift::Least);",
        put: "self.tree.refresh(*flow, &self.entries, Lift::Done);",
        test: "fairness::s18_slots_that_are_used_in_another_pool_bank_nothing_in_this_one",
    },
    Mutant {
        name: "a run is not lifted when its limit has a slot again",
        file: "schedule.rs",
        find: "if behind <= 0 {",
        put: "if behind <= i64::MAX {",
        test: "fairness::a_run_at_its_own_slots_banks_nothing",
    },
    Mutant {
        name: "runs that a limit holds up together forget who is behind",
        file: "schedule.rs",
        find: "for flow in group {",
        put: "for flow in [&run] {",
        test: "fairness::runs_that_a_key_held_up_together_bank_nothing_and_keep_their_order",
    },
    Mutant {
        name: "input is charged at the end",
        file: "schedule/tab.rs",
        find: "tab.charged_millis = waiting.input_millis.min(WORK_MAX as u64);",
        put: "tab.charged_millis = 0;",
        test: "fairness::a_burst_of_free_slots_is_shared_because_input_counts_at_once",
    },
    Mutant {
        name: "output is charged at the end",
        file: "schedule/tab.rs",
        find: "self.tree.charge(tab.run, signed(more));",
        put: "let more = 0;",
        test: "fairness::output_counts_while_it_streams_and_not_only_at_its_end",
    },
    Mutant {
        name: "what is likely to come counts nothing",
        file: "schedule/node.rs",
        find: "if self.pending == 0 {",
        put: "if self.pending < u64::MAX {",
        test: "fairness::output_that_is_likely_to_come_counts_in_part",
    },
    Mutant {
        name: "a correction is made twice",
        file: "schedule/tab.rs",
        find: "self.tree.charge(tab.run, signed(used) - signed(tab.charged_millis));",
        put: "self.tree.charge(tab.run, 2 * (signed(used) - signed(tab.charged_millis)));",
        test: "fairness::s16_streamed_reported_and_interrupted_output_count_the_same",
    },
    Mutant {
        name: "what a run gave back does not move its tenant",
        file: "schedule/tree.rs",
        find: "(false, false) => {}",
        put: "(false, false) => return,",
        test: "fairness::what_a_run_gave_back_counts_for_its_tenant_though_other_runs_of_it_wait",
    },
    Mutant {
        name: "ties do not go by arrival",
        file: "schedule/tree.rs",
        find: "Rank { key: node.key(self.alpha_permille), turn: node.turn }",
        put: "Rank { key: node.key(self.alpha_permille), turn: Turn(u64::from(id.0)) }",
        test: "queue_model::requests_start_in_order_of_arrival_among_those_with_a_free_slot_and_no_wake_up_is_lost",
    },
    Mutant {
        name: "setting counters back forgets who is ahead",
        file: "schedule/tree.rs",
        find: "let lowered = node.served.saturating_sub(amounts[node.parent.index()]);",
        put: "let lowered = node.served.min(0).saturating_sub(0 * amounts[node.parent.index()]);",
        test: "fairness::s15_counters_that_are_set_back_change_no_decision",
    },
    Mutant {
        name: "weights count nothing",
        file: "schedule/node.rs",
        find: "let weight = i64::from(self.weight_millis);",
        put: "let weight = 1_000 + 0 * i64::from(self.weight_millis);",
        test: "fairness::s1_s2_s3_tenants_that_both_wait_stay_within_the_bound_of_each_other",
    },
    Mutant {
        name: "who fits goes ahead of one that does not",
        file: "gate/dispatch.rs",
        find: "if candidate.otherwise == Otherwise::Stop => {
                    break;",
        put: "if candidate.otherwise == Otherwise::Stop => {",
        test: "lanes::headroom_keeps_slots_free_for_the_classes_above_and_lower_ones_stay_behind",
    },
    Mutant {
        name: "a lower class that is owed its share blocks higher ones",
        file: "schedule/lanes.rs",
        find: "let otherwise = if lane.is_overdue(head) { Otherwise::Stop } else { Otherwise::Pass };",
        put: "let otherwise = Otherwise::Stop;",
        test: "lanes::work_owed_by_a_share_is_exempt_from_headroom_and_waits_for_nobody_if_it_fits_nowhere",
    },
    Mutant {
        name: "work owed by a share keeps to its headroom",
        file: "schedule/lanes.rs",
        find: "order.push(Candidate { entry: head.entry, headroom: Headroom::NONE, otherwise });",
        put: "order.push(Candidate { entry: head.entry, headroom: lane.headroom, otherwise });",
        test: "lanes::work_owed_by_a_share_is_exempt_from_headroom_and_waits_for_nobody_if_it_fits_nowhere",
    },
    Mutant {
        name: "a share earns nothing",
        file: "schedule/lanes.rs",
        find: "self.credit = (self.credit + earned).min(most);",
        put: "self.credit = self.credit.min(most);",
        test: "lanes::c01_a_lasting_load_from_above_leaves_batch_its_share_of_every_30_seconds",
    },
    Mutant {
        name: "headroom is not kept",
        file: "schedule/lanes.rs",
        find: "let headroom = lanes[head.lane].headroom;",
        put: "let headroom = Headroom::NONE;",
        test: "lanes::headroom_keeps_slots_free_for_the_classes_above_and_lower_ones_stay_behind",
    },
    Mutant {
        name: "ageing goes by the class alone",
        file: "schedule/lanes.rs",
        find: "Some(_) => owed + place_by_age(lanes, &heads[..index], &order[owed..], head),",
        put: "Some(_) => order.len(),",
        test: "lanes::an_aged_class_goes_by_its_arrival_and_an_offset",
    },
    Mutant {
        name: "nothing is foreseen",
        file: "gate/waiting.rs",
        find: "let foreseen = state.pace.time_for(state.schedule.ahead_millis(entry));",
        put: "let foreseen = state.pace.time_for(state.schedule.ahead_millis(entry) * 0);",
        test: "lanes::a_wait_that_is_foreseen_to_be_too_long_is_refused_at_once_and_others_are_not",
    },
    Mutant {
        name: "a newcomer overtakes who is held",
        file: "gate/arrive.rs",
        find: "if !self.joins_held(request, now) {",
        put: "if true {",
        test: "holding::what_comes_back_lets_the_held_go_at_once_and_in_order",
    },
    Mutant {
        name: "what comes back tells none of the held",
        file: "gate/ending.rs",
        find: "for cell in waited_for {",
        put: "for cell in waited_for.into_iter().take(0) {",
        test: "holding::what_comes_back_lets_the_held_go_at_once_and_in_order",
    },
    Mutant {
        name: "who has delivered something is evicted",
        file: "gate/dispatch.rs",
        find: "    pub(super) fn produced(&mut self, id: RequestId, output: Tokens) {
        self.spare(id);",
        put: "    pub(super) fn produced(&mut self, id: RequestId, output: Tokens) {",
        test: "evicting::who_has_delivered_something_or_was_evicted_before_stays",
    },
    Mutant {
        name: "a run is kept on its backend whatever it costs others",
        file: "schedule/window.rs",
        find: "let most = self.rank(first).key.saturating_add(window);",
        put: "let most = self.rank(first).key.saturating_add(window.max(i64::MAX));",
        test: "evicting::a_run_is_passed_over_by_no_more_than_the_stickiness",
    },
];
