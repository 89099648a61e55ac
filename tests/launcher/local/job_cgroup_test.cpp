// The cgroup of a job: who is in it, who is ended with it, and what is left of it. Where this machine lets root
// delegate a group of version 2, as systemd does for users.
#include "launcher/local/processes/job_cgroup.h"

#include <grp.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "launcher/os/machine/own_cgroup.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

bool holds(const std::vector<ProcessIdentity>& processes, pid_t pid) {
  return std::ranges::any_of(processes, [&](const auto& each) { return each.pid == pid; });
}

// fork(), with the child in the group.
pid_t fork_into(const JobCgroup& group) {
  clone_args arguments{};
  arguments.flags = CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = static_cast<std::uint64_t>(group.descriptor());
  return static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
}

pid_t fork_sleeper() {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::pause();
  ::_exit(0);
}

void end(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// A cgroup that belongs to nobody, in which a process of nobody's runs the test.
class Delegated {
 public:
  Delegated() {
    const auto own = own_cgroup_folder();
    if (::geteuid() != 0 || !own) return;
    std::error_code failed;
    const std::string name = *own + "/ddprun_test_" + std::to_string(::getpid());
    if (!fs::create_directory(name, failed)) return;
    folder_ = name;
    for (const char* part : {"", "/cgroup.procs", "/cgroup.subtree_control"}) {
      if (::chown((folder_ + part).c_str(), kNobody, kNobody) != 0) folder_.clear();
    }
  }
  ~Delegated() {
    if (folder_.empty()) return;
    // Its processes were ended, which the kernel takes note of a little later.
    comes_true([&] { return ::rmdir(folder_.c_str()) == 0 || errno != EBUSY; });
  }
  Delegated(const Delegated&) = delete;
  Delegated& operator=(const Delegated&) = delete;

  bool is_there() const { return !folder_.empty(); }

  // What `body` returns in there.
  std::string run(const std::function<std::string()>& body) const {
    return in_child([&] {
      std::ofstream(folder_ + "/cgroup.procs") << ::getpid() << std::flush;
      if (::setgroups(0, nullptr) != 0 || ::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)
        return std::string("cannot be nobody");
      return body();
    });
  }

  std::vector<std::string> groups() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.is_directory()) names.push_back(entry.path().filename());
    }
    return names;
  }
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

TEST_CASE("JobCgroup: all that was forked into it are its members, in groups below it too, and end together") {
  const Delegated delegated;
  if (!delegated.is_there()) SKIP("no cgroup2 file system in which root may make groups");
  CHECK(delegated.run([&]() -> std::string {
    auto group = JobCgroup::plan();
    if (!group) return "there is no plan";
    if (!delegated.groups().empty()) return "a plan makes nothing yet";
    if (!group->make()) return "it cannot be made";
    if (delegated.groups() != std::vector{"ddprun-" + std::to_string(::getpid())}) return "it has another name";
    const pid_t outside = fork_sleeper();
    const pid_t inside = fork_into(*group);
    if (inside == 0) {
      ::pause();
      ::_exit(0);
    }
    const pid_t with_child = fork_into(*group);
    if (with_child == 0) {
      // A grandchild that nobody's parentage leads to, in a group that it made itself.
      const std::string deeper = delegated.folder() + "/" + delegated.groups().front() + "/deeper";
      if (::fork() == 0) {
        ::mkdir(deeper.c_str(), 0755);
        std::ofstream(deeper + "/cgroup.procs") << ::getpid() << std::flush;
        ::setsid();
        ::pause();
      }
      ::_exit(0);
    }
    ::waitpid(with_child, nullptr, 0);
    std::string problem;
    const auto has_all = [&] {
      const auto members = group->members();
      return members.size() == 2 && holds(members, inside) &&
             fs::exists(delegated.folder() + "/" + delegated.groups().front() + "/deeper");
    };
    if (!comes_true(has_all)) problem = "it has " + std::to_string(group->members().size()) + " members";
    const auto all = processes_of_job(&*group);
    if (!holds(all, outside) || !holds(all, inside) || all.size() != 3) problem += "; not all of the job are known";
    if (std::ranges::count_if(all, [&](const auto& each) { return each.pid == inside; }) != 1)
      problem += "; one is there twice";
    if (processes_of_job(nullptr).size() != 2) problem += "; parentage alone leads to others";
    group->kill();
    int status = 0;
    ::waitpid(inside, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) problem += "; a member was not killed";
    if (!comes_true([&] { return group->members().empty(); })) problem += "; the one below was not killed";
    if (::waitpid(outside, nullptr, WNOHANG) != 0) problem += "; one outside was killed";
    end(outside);
    { const JobCgroup moved = std::move(*group); }
    if (!delegated.groups().empty()) problem += "; the group is still there";
    return problem;
  }) == "");
}

TEST_CASE("JobCgroup: a group in which somebody still is stays, and can be removed by another process") {
  const Delegated delegated;
  if (!delegated.is_there()) SKIP("no cgroup2 file system in which root may make groups");
  CHECK(delegated.run([&]() -> std::string {
    auto group = JobCgroup::plan();
    if (!group || !group->make()) return "it cannot be made";
    const pid_t inside = fork_into(*group);
    if (inside == 0) {
      ::pause();
      ::_exit(0);
    }
    // As the guardian, which has the object as well, ends before the ranks.
    const pid_t other = ::fork();
    if (other == 0) {
      group.reset();
      ::_exit(0);
    }
    ::waitpid(other, nullptr, 0);
    std::string problem;
    if (delegated.groups().size() != 1) problem = "it was removed under somebody";
    if (!holds(group->members(), inside)) problem += "; it has lost its member";
    end(inside);
    if (!comes_true([&] { return group->members().empty(); })) problem += "; it has members that ended";
    group.reset();
    if (!comes_true([&] { return delegated.groups().empty(); })) problem += "; it was not removed";
    return problem;
  }) == "");
}

TEST_CASE("JobCgroup: a name that is taken is not used") {
  const Delegated delegated;
  if (!delegated.is_there()) SKIP("no cgroup2 file system in which root may make groups");
  CHECK(delegated.run([&]() -> std::string {
    auto first = JobCgroup::plan(), second = JobCgroup::plan();
    if (!first || !second || !first->make()) return "it cannot be made";
    return second->make() ? "it was made twice" : "";
  }) == "");
}

TEST_CASE("JobCgroup: where nobody delegated anything there is none") {
  const auto own = own_cgroup_folder();
  if (own && is_delegated(*own)) SKIP("this test's own group is delegated");
  CHECK_FALSE(JobCgroup::plan().has_value());
}

TEST_CASE("JobCgroup: without one the processes of a job are those below") {
  const auto found = in_child([] {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t child = fork_sleeper();
    const pid_t ended = ::fork();
    if (ended == 0) ::_exit(0);
    const pid_t middle = ::fork();
    if (middle == 0) {
      fork_sleeper();
      ::_exit(0);
    }
    ::waitpid(middle, nullptr, 0);
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(ended), &info, WEXITED | WNOWAIT);
    const auto processes = processes_of_job(nullptr);
    const bool is_right =
        processes.size() == 2 && holds(processes, child) && !holds(processes, ended) && !holds(processes, ::getpid());
    for (const auto& each : processes) ::kill(each.pid, SIGKILL);
    return is_right ? std::string() : std::to_string(processes.size()) + " processes";
  });
  CHECK(found == "");
}

}  // namespace
}  // namespace launcher
