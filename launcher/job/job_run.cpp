#include "launcher/job/job_run.h"

#include <algorithm>
#include <utility>

#include "launcher/local/output/reader_timeout.h"
#include "launcher/local/processes/debugger.h"
#include "launcher/local/processes/socket_owners.h"
#include "launcher/local/report/failure_report.h"
#include "launcher/nodes/rendezvous_kinds.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/os/network/interfaces.h"
#include "launcher/os/system/line.h"
#include "launcher/plan/outcome/describe.h"
#include "launcher/plan/outcome/first_failure.h"
#include "launcher/plan/outcome/job_status.h"
#include "launcher/plan/outcome/notices.h"
#include "launcher/plan/outcome/parent_error_file.h"
#include "launcher/plan/rank_plan.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

// How long a launcher that ends tries to write its departure to the rendezvous, where the next coordinator reads it.
constexpr auto kHandOverTimeout = 1s;

}  // namespace

int supervise_job(const JobRequest& request, EventLog& events, SupervisorContext context) {
  const auto text_of = [&](const LaunchError& error) {
    return error.what() + option_sources(error.what(), request.options.variables);
  };
  std::optional<JobRun> job;
  try {
    job.emplace(request, events, std::move(context));
  } catch (const LaunchError& error) {
    const std::string text = text_of(error);
    record_own_error(text);
    print_line(text);
    return notify_other_nodes(request.options, {text, to_int(error.status())});
  }
  try {
    return job->run();
  } catch (const LaunchError& error) {
    record_own_error(text_of(error));
    throw LaunchError(text_of(error), error.status());
  }
}

JobRun::JobRun(const JobRequest& request, EventLog& events, SupervisorContext context)
    : request_(request),
      options_(request.options),
      events_(events),
      context_(std::move(context)),
      open_files_(raise_open_files()),
      cpus_(usable_cpus()),
      inherited_(current_environment()),
      streams_(loop_, options_, plan_environment(options_, 0, random_id_, cpus_).run_id, request.error_folder,
               context_.terminal_input.get(), context_.guardian_group),
      file_timer_(make_file_timer(loop_, messages(), request.error_folder)),
      environment_(plan_environment(options_, 0, random_id_, cpus_)),
      rendezvous_(find_rendezvous(options_)->make(loop_, messages(), rendezvous_settings())),
      watch_(loop_, messages(), events_, options_, streams_.layout(), environment_.run_id, context_.guardian,
             side_channel_) {}

RendezvousSettings JobRun::rendezvous_settings() {
  RendezvousSettings settings = launcher::rendezvous_settings(options_, environment_);
  settings.store.on_connection = [this](std::uint16_t peer_port) { return watches(peer_port); };
  settings.store.owners = owners_of_connections;
  settings.is_any_ending = [this] { return supervisor_->is_any_ending(); };
  settings.on_message = [this](int from, const std::string& text) { watch_.on_message(from, text); };
  settings.on_failure = [this](const FailureNotice& notice) { supervisor_->stop_because(notice); };
  settings.side_channel = side_channel_;
  return settings;
}

void JobRun::print_threads() {
  if (attempt_ > 0 || other_node_prints() || options_.nproc_per_node == 1 ||
      has_variable(inherited_, "OMP_NUM_THREADS"))
    return;
  messages().print("OMP_NUM_THREADS is not set: ddprun sets it to " + std::to_string(environment_.default_omp_threads) +
                   " for each rank (" + std::to_string(cpus_) +
                   " CPUs); to choose another value: -x OMP_NUM_THREADS=N");
}

void JobRun::start_supervisor() {
  SupervisorOptions options{.workers = {.program = request_.program,
                                        .environment = inherited_entries(inherited_, environment_),
                                        .start = {.options = &options_,
                                                  .mask = context_.signals.original_mask(),
                                                  .open_files = open_files_,
                                                  .cgroup = context_.cgroup}},
                            .options = &options_,
                            .may_restart = has_restarts_left()};
  options.on_rank_start = [this](const RankPlace& place, pid_t pid) { events_.rank_started(place, pid, attempt_); };
  options.on_rank_end = [this](const RankEnd& end) { on_rank_end(end); };
  options.on_stop = [this](FailureNotice notice) { rendezvous_->announce(std::move(notice)); };
  options.on_failure = [this](const JobEnd& end, std::size_t first) { announce_failure(end, first); };
  supervisor_.emplace(loop_, context_, messages(), streams_, std::move(options));
}

// The other nodes receive what is known at this moment; this node's own report may contain more.
void JobRun::announce_failure(const JobEnd& end, std::size_t first) {
  announced_ = end.ranks[first].rank;
  FailureNotice notice = notice_of_failure(end, first);
  if (options_.nnodes > 1) {
    JobEnd known = end;
    known.attempt = attempt_;
    known.hints = failure_hints(end.ranks[first], out_of_memory_kills_, folder_of_ranks(options_.working_folder),
                                signal_reason(end.ranks[first]));
    notice.details = failure_details(known, first);
  }
  rendezvous_->announce(std::move(notice));
}

void JobRun::run_until(EventLoop::Clock::time_point deadline, const std::function<bool()>& is_done) {
  bool is_late = false;
  const auto timer = loop_.call_at(deadline, [&is_late] { is_late = true; });
  while (!is_done() && !is_late) loop_.run_once();
  loop_.cancel(timer);
}

// Returns false when ddprun was asked to stop before the nodes met, or when the nodes could not meet.
bool JobRun::join_nodes() {
  const auto gives_up = [this] { return supervisor_->is_stopping() || supervisor_->must_end_now(); };
  while (!rendezvous_->info()) {
    if (gives_up()) return false;
    if (const auto failure = rendezvous_->join_failure()) {
      if (!other_node_prints()) messages().print(failure->text);
      join_status_ = failure->exit_status;
      while (!rendezvous_->has_left() && !gives_up()) loop_.run_once();
      return false;
    }
    loop_.run_once();
  }
  attempt_ = rendezvous_->info()->restart_count.value_or(attempt_);
  environment_.restart_count = attempt_;
  return true;
}

// Determines the address of the ranks' store, and the network interface by which the ranks communicate.
void JobRun::find_store() {
  const RendezvousInfo& info = *rendezvous_->info();
  ranks_store_.emplace(loop_, messages(), options_, info,
                       [this](std::uint16_t peer_port) { return watches(peer_port); });
  ranks_store_->describe(environment_);
  // The ranks of one node need no interface, and a query of all interfaces takes a tenth of a millisecond.
  const bool uses_network = !info.own_address.empty() && !info.own_address.starts_with("127.");
  if (environment_.interface.empty() && uses_network && !nccl_files_choose_interface()) {
    environment_.interface = interface_to_choose(network_interfaces(), info.own_address);
  }
}

void JobRun::start_ranks() {
  const NodePlace& place = rendezvous_->info()->place;
  streams_.begin_attempt(attempt_, place.ranks.world_size);
  std::vector<RankPlan> plans =
      plan_ranks(options_, request_.program, environment_, inherited_, place, request_.resources, streams_.layout());
  for (RankPlan& plan : plans) {
    if (request_.debugger.empty() || plan.place.rank != options_.debug_rank) continue;
    const Program& program = plan.program ? *plan.program : request_.program;
    plan.program =
        under_debugger(program, request_.debugger, first_line_of_text(program.file, options_.working_folder));
    plan.in_terminal = true;
  }
  supervisor_->start(std::move(plans));
}

// The other nodes have started their ranks. This tells them to stop these ranks.
void JobRun::abort_job(const LaunchError& error) {
  rendezvous_->announce({.exit_status = to_int(error.status()), .text = error.what(), .is_final = true});
  rendezvous_->leave(false);
  while (!rendezvous_->has_left() && !supervisor_->must_end_now()) loop_.run_once();
}

// Ends the job when a rank does not reach the store within --start_timeout.
void JobRun::watch_start() {
  if (!options_.start_timeout) return;
  start_watch_.emplace(
      loop_, ranks_store_->ports(), *options_.start_timeout, [this] { return supervisor_->running_ranks(); },
      [this](std::vector<int> missing) {
        stop_on_timeout(rank_list(std::move(missing)) + " had not reached the store within the " +
                        seconds_text(*options_.start_timeout) + " of --start_timeout");
      },
      [this] {
        if (store::StoreServer* store = rendezvous_->store()) store->release();
        ranks_store_->release();
      });
}

// Waits until the other nodes no longer need this launcher, and learns whether one of them failed first.
void JobRun::leave(JobEnd& end) {
  // Without a guardian the ranks were killed, which is not a failure of this node.
  const bool ended_well = !end.elsewhere && exit_status(end) == 0 && !supervisor_->must_end_now();
  if (!supervisor_->must_end_now()) rendezvous_->report_stop(status_of_stop(end, 0));
  rendezvous_->leave(ended_well);
  const auto gives_up = [&] {
    return supervisor_->must_end_now() || (ended_well && timed_out_at_ && !rendezvous_->first_failure());
  };
  while (!rendezvous_->has_left() && !gives_up()) loop_.run_once();
  const auto& first = rendezvous_->first_failure();
  if (!first) return;
  // It may contain a failure on another node that was reported earlier. `first` is the one on which all nodes agree.
  end.elsewhere.reset();
  const bool is_own = first->node == rendezvous_->info()->place.group_rank;
  const bool knows_why = exit_status(end) != 0 || supervisor_->was_stop_requested();
  // The other nodes know only the rank that was announced, not what this node learned later.
  if (is_own && announced_) end.announced = announced_;
  // The other nodes may have given this launcher up while it was frozen.
  if (!is_own || !knows_why) end.elsewhere = *first;
  end.agreed_status = rendezvous_->agreed_status();
}

// `end` is null when the ranks were never started.
void JobRun::finish_output(const JobEnd* end) {
  ReaderTimeout timeout{.begin = EventLoop::Clock::now(),
                        .grace = options_.grace,
                        .ended_well = end != nullptr && exit_status(*end) == 0};
  streams_.finish_attempt([&] {
    timeout.timed_out_at = timed_out_at_;
    timeout.gave_up_before = gave_up_on_reader_;
    if (end == nullptr || supervisor_->was_stop_requested() || end->is_late()) {
      timeout.kill_time = supervisor_->kill_time();
    }
    const auto deadline = timeout.deadline(streams_.last_progress());
    const bool gives_up = supervisor_->must_end_now() || (deadline && EventLoop::Clock::now() >= *deadline);
    gave_up_on_reader_ = gave_up_on_reader_ || gives_up;
    return gives_up;
  });
}

// Runs one attempt from an empty store, without keys of an earlier attempt, to its end. Returns nothing when ddprun was
// asked to stop before the ranks were started.
std::optional<JobEnd> JobRun::run_attempt() {
  supervisor_.reset();
  announced_.reset();
  ranks_store_.reset();
  environment_ = plan_environment(options_, attempt_, random_id_, cpus_);
  if (file_timer_) {
    file_timer_->forget_all();
    environment_.timer_file = file_timer_->path();
  }
  rendezvous_->begin_round(attempt_);
  print_threads();
  start_supervisor();
  if (!join_nodes()) return std::nullopt;
  try {
    find_store();
    start_ranks();
  } catch (const LaunchError& error) {
    abort_job(error);
    throw;
  }
  rendezvous_->ranks_started();
  watch_start();
  const NodePlace place = rendezvous_->info()->place;
  watch_.begin_attempt(*supervisor_, ranks_store_->ports(), attempt_,
                       {.node = place.group_rank,
                        .nodes = place.group_world_size,
                        .world_size = place.ranks.world_size,
                        .send_text = [this](int to, std::string text) { rendezvous_->send_text(to, std::move(text)); },
                        .gpu = [this](int local_rank) { return shown_gpu(inherited_, environment_, local_rank); }});
  JobEnd end = supervisor_->wait();
  start_watch_.reset();
  end.attempt = attempt_;
  watch_.ranks_ended();
  leave(end);
  finish_output(&end);  // the ranks' last lines before the report
  streams_.describe(end);
  add_failure_details(
      end, out_of_memory_kills_, options_.working_folder,
      [this](int local_rank) { return shown_gpu(inherited_, environment_, local_rank); },
      [this](const RankEnd& rank) { return signal_reason(rank); });
  watch_.end_attempt(end);
  events_.attempt_failed(end, attempt_);
  if (!options_.part_descriptor || !end.elsewhere) messages().print_lines(failure_report(end));
  return end;
}

bool JobRun::has_restarts_left() const {
  return attempt_ < options_.max_restarts || rendezvous_->counts_restarts();
}

// A job is restarted after a failure, not after a request to stop or after --timeout.
bool JobRun::should_restart(const JobEnd& end) const {
  return has_restarts_left() && exit_status(end) != 0 && !supervisor_->was_stop_requested() &&
         (!end.is_late() || end.restarts_after_timeout) && !is_over() && !(end.elsewhere && end.elsewhere->is_final) &&
         rendezvous_->can_restart();
}

// Returns false when ddprun was asked to stop during the wait, or when --timeout expired.
bool JobRun::wait_before_restart() {
  watch_.waits_for_restart(options_.restart_backoff);
  run_until(EventLoop::Clock::now() + options_.restart_backoff, [this] { return is_over(); });
  return !is_over();
}

// --timeout applies in every state of the job: while it runs, while it is being stopped, and while it waits for a
// restart or for a reader of its output.
void JobRun::on_timeout() {
  timed_out_at_ = EventLoop::Clock::now();
  if (supervisor_) stop_on_timeout("--timeout expired");
}

void JobRun::print_why_not_restarted(const JobEnd& end) {
  if (rendezvous_->counts_restarts()) return;
  if (attempt_ < options_.max_restarts && !rendezvous_->can_restart()) {
    messages().print("the job is not restarted: some of its nodes run torchrun, which would not restart with it");
  } else if (timed_out_at_ && !end.is_late() && options_.max_restarts > 0) {
    messages().print("the job is not restarted: --timeout expired");
  }
}

// Copies this node's first failure to the error file of the process that started ddprun.
void JobRun::pass_on_error(const JobEnd& end) {
  const std::string target = parent_error_file();
  const auto first = first_failure(end);
  if (target.empty() || !first) return;
  const RankEnd& rank = end.ranks[*first];
  const std::string source =
      streams_.layout().error_file(end.attempt, {.rank = rank.rank, .local_rank = rank.local_rank});
  if (const std::string problem = pass_on_error_file(source, target, rank); !problem.empty()) messages().print(problem);
}

int JobRun::status_without_ranks() const {
  if (join_status_) return *join_status_;
  if (supervisor_->must_end_now()) return to_int(ExitStatus::kLauncherError);  // the guardian was killed
  if (supervisor_->stop_signal() == 0) return to_int(ExitStatus::kTimeout);
  return options_.torchrun_exit_code ? 1 : to_int(ExitStatus::kSignalBase) + supervisor_->stop_signal();
}

void JobRun::print_restart() {
  if (rendezvous_->counts_restarts()) return;  // which nodes take part is not known yet
  messages().print("restarting all ranks: restart " + std::to_string(attempt_) + " of " +
                   std::to_string(options_.max_restarts));
}

// Informs the other nodes that this launcher ends, so that they need not wait until they detect it.
void JobRun::hand_over_coordination() {
  rendezvous_->hand_over_coordination();
  run_until(EventLoop::Clock::now() + kHandOverTimeout, [this] { return rendezvous_->has_handed_over(); });
}

int JobRun::run() {
  try {
    return run_attempts();
  } catch (const LaunchError&) {
    hand_over_coordination();
    throw;
  }
}

int JobRun::run_attempts() {
  if (options_.timeout) {
    loop_.call_at(EventLoop::Clock::now() + *options_.timeout, [this] { on_timeout(); });
  }
  std::optional<JobEnd> end = run_attempt();
  while (end && should_restart(*end)) {
    ++attempt_;
    events_.restarting(attempt_);
    print_restart();
    if (!wait_before_restart()) break;
    end = run_attempt();
  }
  hand_over_coordination();
  if (end && exit_status(*end) != 0) {
    print_why_not_restarted(*end);
    pass_on_error(*end);
  }
  finish_output(end ? &*end : nullptr);
  if (!end) return status_without_ranks();
  const int status = options_.torchrun_exit_code ? torchrun_exit_status(*end) : exit_status(*end);
  return status == 0 && !streams_.problem().empty() ? to_int(ExitStatus::kLauncherError) : status;
}

}  // namespace launcher
