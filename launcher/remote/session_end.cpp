// How a session ends: the hosts are stopped, what they wrote is shown, connections are closed.
#include <chrono>
#include <string>
#include <utility>

#include "launcher/local/output/reader_patience.h"
#include "launcher/os/system/exit_status.h"
#include "launcher/remote/session.h"

namespace launcher::remote {
namespace {

using namespace std::chrono_literals;

// What the hosts may take beyond the grace time.
constexpr auto kBeyondAgentsGrace = 30s;
// How long connections may take to end when nothing is left to say.
constexpr auto kClosing = 5s;
// How often it is asked whether to wait on for a reader.
constexpr auto kTick = 50ms;

}  // namespace

void Session::stop(int signal) {
  is_stopping_ = true;
  if (!has_begun_) return;
  send_amount(Kind::kSignal, kEveryHost, static_cast<std::uint32_t>(signal));
  if (kill_time_) return;
  kill_time_ = EventLoop::Clock::now() + options_.grace;
  give_up_after(options_.grace + kBeyondAgentsGrace);
}

void Session::give_up_after(EventLoop::Clock::duration time) {
  if (give_up_timer_) loop_.cancel(*give_up_timer_);
  give_up_timer_ = loop_.call_at(EventLoop::Clock::now() + time, [this] {
    give_up_timer_.reset();
    if (is_over()) return;
    if (!check_) console_.say(hosts_.names_of_unfinished() + " did not end in time; not waiting any longer");
    note_status(1);
    gives_up_ = true;
  });
}

// The first one counts, but what failed outranks "saved and stopped".
void Session::note_status(int status) {
  if (status_ == 0 || (status_ == to_int(ExitStatus::kSavedAndStopped) && status != 0)) status_ = status;
}

int Session::finish() {
  input_.reset();
  if (check_ && has_begun_) {
    CheckReport report = check_->report(hosts_);
    console_.add(0, 0, std::move(report.text));
    status_ = report.can_run ? 0 : to_int(ExitStatus::kLauncherError);
  }
  write_all();
  close_links();
  std::string problem = console_.problem();
  if (problem.empty() && is_output_lost_)
    problem = "output was lost: it was dropped on the hosts because nobody read it";
  if (!problem.empty()) {
    console_.say(problem);
    note_status(to_int(ExitStatus::kLauncherError));
  }
  return status_;
}

// Whoever reads may be slow, as on one machine. What the hosts still have comes as room is made for it.
void Session::write_all() {
  ReaderPatience patience{
      .begin = EventLoop::Clock::now(), .grace = options_.grace, .kill_time = kill_time_, .ended_well = status_ == 0};
  const auto has_more = [this] { return !console_.is_empty() || (has_begun_ && !gives_up_ && !hosts_.are_all_over()); };
  while (has_more() && !is_impatient_) {
    patience.timed_out_at = timed_out_at_;
    const auto deadline = patience.deadline(console_.last_progress());
    if (deadline && EventLoop::Clock::now() >= *deadline) break;
    const auto timer = loop_.call_at(EventLoop::Clock::now() + kTick, [] {});
    loop_.run_once();
    loop_.cancel(timer);
  }
  is_output_lost_ = has_more();
  console_.drop_all();
}

void Session::close_links() {
  hub_.close();
  bool is_late = false;
  loop_.call_at(EventLoop::Clock::now() + (gives_up_ ? 0s : kClosing), [&is_late] { is_late = true; });
  while (!hub_.is_gone() && !is_late) loop_.run_once();
  hub_.kill();
}

}  // namespace launcher::remote
