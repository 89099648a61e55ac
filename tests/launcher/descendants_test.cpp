#include "launcher/processes/descendants.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

namespace launcher {
namespace {

const std::string kTail = " 1 2 3 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 111 222";

TEST(ProcessStat, FieldsAreFoundBehindAnyCommand) {
  for (const std::string command : {"(sh)", "(a b)", "(a) S 9 (b)", "())", "(\n)"}) {
    const auto process = parse_process_stat("123 " + command + " S 77" + kTail);
    ASSERT_TRUE(process) << command;
    EXPECT_EQ(process->pid, 123);
    EXPECT_EQ(process->state, 'S');
    EXPECT_EQ(process->parent, 77);
    EXPECT_EQ(process->group, 1);
    EXPECT_FALSE(process->is_ending);
    EXPECT_EQ(process->start_time, 987654U);
  }
}

TEST(ProcessStat, WhoIsOnItsWayOutIsKnown) {
  for (const std::uint64_t flag : {0x4, 0x8, 0x200}) {
    std::string tail = kTail;
    tail.replace(tail.find("4194560"), 7, std::to_string(4194560 | flag));
    EXPECT_TRUE(parse_process_stat("123 (sh) R 77" + tail)->is_ending) << flag;
  }
}

TEST(ProcessStat, WhatIsCutShortIsRefused) {
  const std::string whole = "123 (sh) S 77" + kTail;
  const std::size_t needed = whole.find(" 111");
  for (std::size_t length = 0; length < needed - 6; ++length) {
    EXPECT_FALSE(parse_process_stat(whole.substr(0, length))) << length;
  }
  EXPECT_FALSE(parse_process_stat("x (sh) S 77" + kTail));
  EXPECT_FALSE(parse_process_stat("-1 (sh) S 77" + kTail)) << "a signal to -1 reaches everybody";
  EXPECT_FALSE(parse_process_stat("0 (sh) S 77" + kTail));
}

TEST(Descendants, AreFoundAndSignalledOnlyWhileTheyAreThemselves) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    pause();
    _exit(0);
  }
  const auto found = descendants_of(getpid());
  const auto ours = std::find_if(found.begin(), found.end(), [&](const auto& process) { return process.pid == child; });
  ASSERT_NE(ours, found.end());
  EXPECT_EQ(ours->parent, getpid());

  ProcessIdentity successor = *ours;  // the same number, but started at another time
  successor.start_time += 1;
  EXPECT_FALSE(signal_process(successor, SIGKILL));
  EXPECT_TRUE(signal_process(*ours, 0));
  EXPECT_TRUE(signal_process(*ours, SIGKILL));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_FALSE(signal_process(*ours, SIGKILL));
}

}  // namespace
}  // namespace launcher
