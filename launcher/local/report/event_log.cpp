#include "launcher/local/report/event_log.h"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "launcher/observe/straggler/straggler.h"
#include "launcher/observe/watch/findings.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/json_text.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/signals.h"
#include "launcher/plan/outcome/first_failure.h"

namespace launcher {
namespace {

using nlohmann::ordered_json;

ordered_json fields_of(const RankEnd& rank, int attempt) {
  return {{"attempt", attempt},
          {"rank", rank.rank},
          {"local_rank", rank.local_rank},
          {"pid", rank.pid},
          {"exit_code", rank.signal == 0 ? ordered_json(rank.exit_code) : ordered_json(nullptr)},
          {"signal", rank.signal != 0 ? ordered_json(signal_name(rank.signal)) : ordered_json(nullptr)},
          {"core_dumped", rank.core_dumped},
          {"told_to_stop", rank.stop_requested}};
}

double seconds_since_epoch(std::chrono::system_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace

EventLog::EventLog(const std::string& file) : file_(file) {
  if (file.empty()) return;
  host_ = host_name();
  // Opened without blocking: a named pipe without a reader is refused at once, and a reader that does not read must not
  // block the job.
  fd_.reset(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
  if (!fd_) {
    throw LaunchError("--events " + file + ": " +
                      (errno == ENXIO ? "no process reads from this pipe" : std::string(std::strerror(errno))));
  }
}

void EventLog::rank_started(const RankPlace& place, pid_t pid, int attempt) {
  if (!fd_) return;
  write("start", {{"attempt", attempt}, {"rank", place.rank}, {"local_rank", place.local_rank}, {"pid", pid}});
}

void EventLog::rank_ended(const RankEnd& rank, int attempt) {
  if (fd_) write("exit", fields_of(rank, attempt));
}

void EventLog::attempt_failed(const JobEnd& end, int attempt) {
  if (!fd_) return;
  if (end.elsewhere) {
    write("failure", {{"attempt", attempt},
                      {"node", end.elsewhere->node},
                      {"exit_status", end.elsewhere->exit_status},
                      {"message", end.elsewhere->text}});
    return;
  }
  const auto first = first_failure(end);
  if (!first) return;
  const RankEnd& culprit = end.ranks[*first];
  ordered_json fields = fields_of(culprit, attempt);
  fields["ended_at"] = seconds_since_epoch(culprit.time);
  fields["message"] = culprit.error ? ordered_json(culprit.error->message) : ordered_json(nullptr);
  write("failure", fields);
}

void EventLog::restarting(int attempt) {
  if (fd_) write("restart", {{"attempt", attempt}});
}

void EventLog::hang(int attempt, const Hang& hang) {
  if (!fd_) return;
  const Verdict& verdict = hang.verdict;
  write("hang", {{"attempt", attempt},
                 {"idle", std::chrono::duration<double>(hang.reported - hang.since).count()},
                 {"since", seconds_since_epoch(hang.since)},
                 {"kind", name_of(verdict.kind)},
                 {"ranks", verdict.culprits},
                 {"waiting_rank", verdict.waiter ? ordered_json(*verdict.waiter) : ordered_json(nullptr)},
                 {"message", verdict.sentence}});
}

void EventLog::hang_ended(int attempt, const Hang& hang, WallTime now) {
  if (!fd_) return;
  write("hang_over", {{"attempt", attempt},
                      {"ranks", hang.verdict.culprits},
                      {"since", seconds_since_epoch(hang.since)},
                      {"seconds", std::chrono::duration<double>(now - hang.since).count()}});
}

void EventLog::straggler(int attempt, const StragglerChange& change) {
  if (!fd_) return;
  const Straggler& straggler = change.straggler;
  if (change.is_over) return write("straggler_over", {{"attempt", attempt}, {"rank", straggler.rank}});
  write("straggler", {{"attempt", attempt},
                      {"rank", straggler.rank},
                      {"phase", straggler.phase},
                      {"excess", straggler.excess},
                      {"own_seconds_per_step", straggler.own_us / 1e6},
                      {"median_seconds_per_step", straggler.median_us / 1e6},
                      {"reason", straggler.reason.empty() ? ordered_json(nullptr) : ordered_json(straggler.reason)},
                      {"message", to_text(straggler)}});
}

void EventLog::job_ended(int exit_status) {
  if (fd_) write("end", {{"exit_status", exit_status}});
}

void EventLog::write(const char* event, const ordered_json& fields) {
  if (!problem_.empty()) return;  // the last line was cut off, so a reader could not parse lines after it
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  ordered_json line{{"event", event},
                    {"time", seconds_since_epoch(std::chrono::system_clock::now())},
                    {"elapsed", elapsed.count()},
                    {"host", host_}};
  line.update(fields);
  const std::string text = json_text(line) + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(fd_.get(), text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      problem_ = "--events " + file_ + ": " + error_text(errno) + (done > 0 ? "; its last line is incomplete" : "");
      return;
    }
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace launcher
