#include "launcher/observe/watch/job_search.h"

#include <nlohmann/json.hpp>
#include <poll.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/joined.h"
#include "launcher/observe/watch/process_state.h"
#include "launcher/observe/watch/runtime_folder.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// The timeout for all jobs together. A ddprun that runs answers within milliseconds.
constexpr auto kSearchTimeout = 5s;

// The answer of a job with tens of thousands of ranks is shorter.
constexpr std::size_t kMaxAnswerBytes = std::size_t{256} << 20;

struct PendingReply {
  std::string socket;
  UniqueFd fd;
  std::string answer{};
  bool is_over = false;
};

// Returns false when no more bytes will arrive.
bool read_some(PendingReply& pending) {
  std::array<char, 1 << 16> buffer{};
  const ssize_t count = ::read(pending.fd.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (count <= 0) return false;
  pending.answer.append(buffer.data(), static_cast<std::size_t>(count));
  if (pending.answer.size() <= kMaxAnswerBytes) return true;
  pending.answer.clear();  // not an answer of a ddprun
  return false;
}

void ask_all(std::vector<PendingReply>& all, const std::string& request) {
  for (PendingReply& pending : all) {
    pending.is_over = !pending.fd || ::send(pending.fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0;
  }
  const auto deadline = Clock::now() + kSearchTimeout;
  while (true) {
    std::vector<pollfd> polled;
    std::vector<PendingReply*> open;
    for (PendingReply& pending : all) {
      if (pending.is_over) continue;
      polled.push_back({.fd = pending.fd.get(), .events = POLLIN, .revents = 0});
      open.push_back(&pending);
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (open.empty() || left <= 0ms) return;
    if (::poll(polled.data(), polled.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (polled[i].revents != 0) open[i]->is_over = !read_some(*open[i]);
    }
  }
}

// Returns the process number in "/run/user/1000/ddprun/1234.sock"; 0 for other names.
pid_t number_in_name(const std::string& socket) {
  const std::string name = socket.substr(socket.rfind('/') + 1);
  pid_t pid = 0;
  std::from_chars(name.data(), name.data() + name.size(), pid);
  return pid;
}

// The identity of the PID namespace of a process, for its folder in /proc; nothing if it cannot be read.
std::optional<ino_t> pid_namespace(const std::string& process) {
  struct stat status {};
  if (::stat((process + "/ns/pid").c_str(), &status) != 0) return std::nullopt;
  return status.st_ino;
}

// The process number in the process's own PID namespace; 0 if it cannot be read.
pid_t own_number(const std::string& process) {
  std::ifstream status(process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("NSpid:")) continue;
    return std::atoi(line.c_str() + line.find_last_of(" \t") + 1);
  }
  return 0;
}

// The process number of the ddprun at the other end of `fd` if it runs in another PID namespace, 0 if it cannot be seen
// from this one. Nothing if it runs in this one, or if that is not known.
std::optional<pid_t> peer_in_other_namespace(const UniqueFd& fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (!fd || ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  if (peer.pid == 0) return 0;
  const auto its_namespace = pid_namespace("/proc/" + std::to_string(peer.pid));
  if (!its_namespace || its_namespace == pid_namespace("/proc/self")) return std::nullopt;
  return peer.pid;
}

// A ddprun has three processes, each a child of the one before. `ddprun` is the first.
std::vector<pid_t> processes_of(pid_t ddprun) {
  std::vector<pid_t> processes{ddprun};
  for (const pid_t child : children_of(ddprun)) {
    processes.push_back(child);
    for (const pid_t grandchild : children_of(child)) processes.push_back(grandchild);
  }
  return processes;
}

// Returns why this ddprun does not answer. `ddprun` is its number in its own PID namespace, `fd` a connection to it.
std::string why_silent(pid_t ddprun, const UniqueFd& fd) {
  const auto peer = peer_in_other_namespace(fd);
  const std::vector<pid_t> processes = peer ? std::vector<pid_t>{*peer} : processes_of(ddprun);
  std::vector<pid_t> stopped;
  std::string how;
  std::string states;
  for (const pid_t pid : processes) {
    const auto state = process_state(pid, /*in_detail=*/true);
    if (!state) continue;
    ddp::detail::append_item(states, std::to_string(pid) + " is " + to_text(*state));
    if (!state->is_stopped()) continue;
    stopped.push_back(pid);
    how = to_text(*state);
  }
  const std::string begin = "ddprun " + std::to_string(ddprun) + " does not answer";
  if (stopped.empty()) {
    return begin + " within " + std::to_string(kSearchTimeout.count()) + " s" +
           (states.empty() ? "" : " (" + states + ")") + "; ask again later";
  }
  return begin + ": its process" + (stopped.size() == 1 ? " " : "es ") + ddp::detail::joined(stopped) +
         (stopped.size() == 1 ? " is " : " are ") + how + "; its ranks may continue; `kill -CONT " +
         ddp::detail::joined(stopped, " ") + "` resumes it";
}

bool has_name(const std::string& document, const std::string& job) try {
  const auto parsed = nlohmann::json::parse(document, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() && (parsed.value("job", "") == job || std::to_string(parsed.value("pid", 0)) == job);
} catch (const nlohmann::json::exception&) {
  return false;  // the answer of another user may be anything
}

std::string user_name(uid_t number) {
  const passwd* const entry = ::getpwuid(number);
  return entry != nullptr ? entry->pw_name : std::to_string(number);
}

std::string owner_of(const std::string& socket) {
  struct stat status {};
  return ::lstat(socket.c_str(), &status) == 0 ? user_name(status.st_uid) : "?";
}

std::vector<std::string> own_sockets() {
  const std::string folder = runtime_folder();
  if (const std::string problem = make_runtime_folder(folder); !problem.empty()) {
    throw LaunchError("cannot search for jobs: " + problem);
  }
  return live_sockets(folder);
}

std::vector<std::string> all_sockets() {
  std::ifstream file("/proc/net/unix");
  std::ostringstream text;
  text << file.rdbuf();
  std::vector<std::string> sockets;
  for (const std::string& folder : listening_folders(text.str())) {
    const auto found = others_sockets(folder);
    sockets.insert(sockets.end(), found.begin(), found.end());
  }
  return sockets;
}

}  // namespace

std::string proc_folder_of(const std::string& socket) {
  const std::string own = "/proc";
  const auto peer = peer_in_other_namespace(connect_to(socket));
  if (!peer) return own;
  if (*peer == 0) return "";
  // Its /proc may still be that of another namespace, where the same number belongs to another process.
  const std::string ddprun = own + "/" + std::to_string(*peer);
  std::string its_proc = ddprun + "/root" + own;
  const std::string in_its_proc = its_proc + "/" + std::to_string(own_number(ddprun));
  return pid_namespace(in_its_proc) == pid_namespace(ddprun) ? its_proc : "";
}

std::optional<std::string> ask(const std::string& socket, const std::string& request) {
  std::vector<PendingReply> one(1);
  one.front().fd = connect_to(socket);
  ask_all(one, request);
  std::string& answer = one.front().answer;
  return answer.empty() ? std::nullopt : std::optional(std::move(answer));
}

std::vector<FoundJob> find_jobs(const std::string& job, JobScope scope) {
  const bool is_of_all = scope == JobScope::kAll;
  std::vector<PendingReply> all;
  for (const std::string& socket : is_of_all ? all_sockets() : own_sockets()) {
    UniqueFd fd = connect_to(socket);
    if (fd || errno == EAGAIN) all.push_back({.socket = socket, .fd = std::move(fd)});  // else it has just ended
  }
  ask_all(all, "status\n");
  std::vector<FoundJob> found;
  std::vector<FoundJob> silent;
  for (PendingReply& pending : all) {
    const pid_t pid = number_in_name(pending.socket);
    const std::string user = is_of_all ? owner_of(pending.socket) : "";
    if (pending.is_over && !pending.answer.empty()) {
      if (job.empty() || has_name(pending.answer, job))
        found.push_back({.socket = pending.socket, .pid = pid, .user = user, .document = std::move(pending.answer)});
    } else if (!pending.is_over || !pending.fd) {  // else it has ended during the search
      silent.push_back({.socket = pending.socket, .pid = pid, .user = user, .problem = why_silent(pid, pending.fd)});
    }
  }
  const auto is_meant = [&](const FoundJob& each) { return std::to_string(each.pid) == job; };
  if (const auto meant = std::find_if(silent.begin(), silent.end(), is_meant); meant != silent.end()) return {*meant};
  if (job.empty() || found.empty()) found.insert(found.end(), silent.begin(), silent.end());
  return found;
}

bool names_all_users(const std::string& word) {
  return word == "--all_users" || word == "--all-users";
}

JobScope scope_of_all_users() {
  if (::geteuid() == 0) return JobScope::kAll;
  print_line("--all_users: only root can see the jobs of other users; these are yours");
  return JobScope::kOwn;
}

int refuse_job(const std::string& job, JobScope scope) {
  if (scope == JobScope::kAll) {
    print_line(job.empty() ? "no job runs on this machine" : "no job '" + job + "' runs on this machine");
    return 1;
  }
  const char* const others = ::geteuid() == 0 ? "; --all_users looks for those of other users too" : "";
  print_line((job.empty() ? "none of your jobs runs on this machine"
                          : "you have no job '" + job + "' on this machine (its name, or ddprun's process ID)") +
             std::string(others));
  return 1;
}

}  // namespace launcher
