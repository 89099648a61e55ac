#include "launcher/report/failure_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "launcher/outcome/describe.h"
#include "launcher/outcome/first_failure.h"
#include "launcher/outcome/job_status.h"

namespace launcher {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

const auto kStart = std::chrono::system_clock::from_time_t(1'700'000'000);

RankEnd exited(int rank, int code, int ms, bool told = false) {
  return {.rank = rank,
          .local_rank = rank,
          .pid = 100 + rank,
          .exit_code = code,
          .told_to_stop = told,
          .time = kStart + milliseconds(ms)};
}
RankEnd killed(int rank, int signal, int ms, bool told = false) {
  RankEnd end = exited(rank, 0, ms, told);
  end.signal = signal;
  return end;
}
JobEnd job(std::vector<RankEnd> ranks, int stop_signal = 0) {
  return {.ranks = std::move(ranks), .start = kStart, .stop_signal = stop_signal, .host = "node7"};
}
double at(double seconds_after_start) {
  return 1'700'000'000 + seconds_after_start;
}

TEST(ExitStatusOf, SuccessIsZeroAndSilent) {
  const JobEnd end = job({exited(0, 0, 10), exited(1, 0, 20)});
  EXPECT_EQ(exit_status(end), 0);
  EXPECT_EQ(failure_report(end), "");
}

TEST(ExitStatusOf, TheFirstFailureNotTheLowestRank) {
  const JobEnd end = job({exited(2, 0, 5), exited(3, 33, 10), exited(0, 1, 11), killed(1, SIGTERM, 12, true)});
  EXPECT_EQ(first_failure(end), 1U);
  EXPECT_EQ(exit_status(end), 33);
}

TEST(ExitStatusOf, ASignalIs128PlusItsNumber) {
  EXPECT_EQ(exit_status(job({killed(0, SIGSEGV, 1)})), 139);
  EXPECT_EQ(exit_status(job({killed(0, SIGKILL, 1)})), 137);
}

TEST(ExitStatusOf, ToldToStop) {
  EXPECT_EQ(exit_status(job({exited(0, 0, 1, true), exited(1, 0, 1, true)}, SIGTERM)), 0);
  EXPECT_EQ(exit_status(job({exited(0, 85, 1, true), exited(1, 0, 1, true)}, SIGTERM)), 85);
  EXPECT_EQ(exit_status(job({killed(0, SIGTERM, 1, true), exited(1, 85, 1, true)}, SIGTERM)), 143);
  EXPECT_EQ(exit_status(job({exited(0, 1, 1, true)}, SIGINT)), 130);
  EXPECT_EQ(failure_report(job({exited(0, 1, 1, true)}, SIGINT)), "");
}

TEST(ExitStatusOf, AFailureBeforeBeingToldToStopCounts) {
  EXPECT_EQ(exit_status(job({exited(0, 7, 1), killed(1, SIGTERM, 2, true)}, SIGTERM)), 7);
}

TEST(FirstFailure, AnEarlierErrorFileOutranksAnEarlierExit) {
  RankEnd slow = exited(1, 51, 3000, true);  // took 2.5 s to end, and was asked to stop meanwhile
  slow.error = ErrorRecord{"culprit", at(0.5)};
  RankEnd victim = exited(0, 50, 1000);
  victim.error = ErrorRecord{"connection closed by peer", at(0.9)};
  EXPECT_EQ(exit_status(job({victim, slow})), 51);
}

TEST(FirstFailure, ACulpritThatOurOwnSignalEndedHasStatusOne) {
  RankEnd slow = killed(1, SIGTERM, 3000, /*told=*/true);
  slow.error = ErrorRecord{"culprit", at(0.5)};
  EXPECT_EQ(exit_status(job({exited(0, 50, 1000), slow})), 1);
}

TEST(FirstFailure, OfRanksThatFailAlikeTheFirstOneIsNotSaidToBeLater) {
  RankEnd first = killed(2, SIGTERM, 505, /*told=*/true);  // by ddprun, when the other one had ended
  first.error = ErrorRecord{"the option is wrong", at(0.4961)};
  RankEnd second = exited(0, 1, 500);
  second.error = ErrorRecord{"the option is wrong", at(0.4981)};
  const std::string report = failure_report(job({second, first}));
  EXPECT_THAT(report, HasSubstr("rank 2 failed first: it reported an error, and was stopped by ddprun\n"));
  EXPECT_THAT(report, HasSubstr("later:  rank 0 exited with status 1, 0.002 s after it\n"));
  EXPECT_THAT(report, Not(HasSubstr("SIGTERM")));
}

TEST(FirstFailure, AWholeSecondIsNoEvidenceWithinThatSecond) {
  RankEnd victim = exited(1, 51, 800);
  victim.error = ErrorRecord{"written at some time in second 0", at(0)};
  EXPECT_EQ(exit_status(job({exited(0, 50, 500), victim})), 50);

  victim.time = kStart + milliseconds(2500);
  EXPECT_EQ(exit_status(job({exited(0, 50, 500), victim})), 50);
  EXPECT_EQ(exit_status(job({exited(0, 50, 1500), victim})), 51);  // in second 0, and the other ended later
}

TEST(FirstFailure, UnbelievableTimesAreIgnored) {
  for (const double time : {at(-100.5), at(1e6), 0.0, -1.0}) {
    RankEnd odd = exited(1, 51, 900);
    odd.error = ErrorRecord{"odd", time};
    EXPECT_EQ(exit_status(job({exited(0, 50, 500), odd})), 50) << time;
  }
}

TEST(FirstFailure, ARankWhosePeerWasGoneIsNotTheCulprit) {
  RankEnd victim = exited(0, 1, 500);
  victim.error = ErrorRecord{"RuntimeError: [../gloo/pair.cc] Connection closed by peer [127.0.0.1]:1234", at(0)};
  RankEnd culprit = exited(1, 51, 700, /*told=*/true);
  culprit.error = ErrorRecord{"ValueError: no such shard", at(0)};
  EXPECT_EQ(exit_status(job({victim, culprit})), 51);
  EXPECT_THAT(failure_report(job({victim, culprit})),
              HasSubstr("rank 0 exited with status 1, 0.200 s before that: its peer was gone"));

  culprit.told_to_stop = false;
  culprit.error.reset();
  EXPECT_EQ(exit_status(job({victim, culprit})), 51);

  RankEnd stopped = exited(1, 51, 5000, /*told=*/true);  // its error came later, from being stopped
  stopped.error = ErrorRecord{"interrupted", at(4.5)};
  EXPECT_EQ(exit_status(job({victim, stopped})), 1);
  EXPECT_EQ(exit_status(job({victim, killed(1, SIGTERM, 600, true)})), 1);
}

TEST(FirstFailure, AnErrorFileOfARankThatEndedWellIsNothing) {
  RankEnd fine = exited(1, 0, 900);
  fine.error = ErrorRecord{"recovered", at(0.1)};
  EXPECT_EQ(first_failure(job({fine, exited(0, 0, 950)})), std::nullopt);
}

TEST(FailureReport, SaysRankHowWhenWhereAndWhatBecameOfTheOthers) {
  RankEnd culprit = killed(3, SIGSEGV, 1204);
  culprit.core_dumped = true;
  culprit.error = ErrorRecord{"line one\nline two", std::nullopt};
  const std::string text = failure_report(job(
      {exited(5, 0, 10), culprit, exited(4, 1, 1210), killed(0, SIGTERM, 1220, true), killed(1, SIGKILL, 1230, true)}));
  EXPECT_THAT(text, HasSubstr("rank 3 failed first: it was killed by SIGSEGV (core dumped)"));
  EXPECT_THAT(text, HasSubstr("1.204 s after the start"));
  EXPECT_THAT(text, HasSubstr("host node7, local rank 3, process 103"));
  EXPECT_THAT(text, HasSubstr("    line one\n    line two\n"));
  EXPECT_THAT(text, HasSubstr("rank 4 exited with status 1, 0.006 s after it"));
  EXPECT_THAT(text, HasSubstr("ranks 0, 1 were stopped by ddprun"));
  EXPECT_THAT(text, HasSubstr("rank 5 had ended normally"));
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 10);
}

TEST(FailureReport, StaysShortWithManyRanksAndALongMessage) {
  std::vector<RankEnd> ranks;
  for (int rank = 0; rank < 1000; ++rank) ranks.push_back(exited(rank, 1, rank));
  std::string message;
  for (int line = 0; line < 1000; ++line) message += "line " + std::to_string(line) + std::string(2000, 'x') + "\n";
  ranks.front().error = ErrorRecord{message + "the last line", std::nullopt};
  const std::string text = failure_report(job(ranks));
  EXPECT_LT(text.size(), 8000U);
  EXPECT_THAT(text, HasSubstr("the last line"));
  EXPECT_THAT(text, HasSubstr("991 more failed as well"));
}

TEST(FailureReport, TheLastLinesOfStandardErrorAndTheLogFile) {
  RankEnd culprit = exited(0, 1, 1);
  culprit.last_lines = "Traceback\nValueError: no such shard\n";
  culprit.log_file = "logs/0/stderr.log";
  EXPECT_THAT(failure_report(job({culprit})),
              HasSubstr("  stderr:\n    Traceback\n    ValueError: no such shard\n  log:    logs/0/stderr.log\n"));

  culprit.error = ErrorRecord{"ValueError: no such shard", std::nullopt};  // said once
  EXPECT_THAT(failure_report(job({culprit})), Not(HasSubstr("stderr:")));
  culprit.error = ErrorRecord{"Traceback ...\nValueError: no such shard\n", std::nullopt};
  EXPECT_THAT(failure_report(job({culprit})), Not(HasSubstr("stderr:")));
  culprit.error = ErrorRecord{"something else", std::nullopt};
  EXPECT_THAT(failure_report(job({culprit})), HasSubstr("stderr:"));
}

TEST(FirstFailure, LastLinesSayThatThePeerWasGone) {
  RankEnd victim = exited(0, 1, 500);
  victim.last_lines = "RuntimeError: [../gloo/pair.cc] Connection closed by peer [127.0.0.1]:1234\n";
  EXPECT_EQ(exit_status(job({victim, exited(1, 51, 700)})), 51);
  EXPECT_EQ(exit_status(job({victim, killed(1, SIGTERM, 700, /*told=*/true)})), 1);
}

TEST(FailureReport, GpuAttemptAndHints) {
  JobEnd end = job({killed(2, SIGKILL, 1000)});
  end.gpu = "GPU 2 (NVIDIA H200, GPU-12)";
  end.attempt = 3;
  end.hints = {"out of memory"};
  const std::string text = failure_report(end);
  EXPECT_THAT(text, HasSubstr("process 102, GPU 2 (NVIDIA H200, GPU-12)\n"));
  EXPECT_THAT(text, HasSubstr("1.000 s after the start of restart 3\n"));
  EXPECT_THAT(text, HasSubstr("  hint:   out of memory\n"));
}

TEST(ExitStatusOf, TorchrunsIsOneForWhateverComesFromTheRanks) {
  EXPECT_EQ(torchrun_exit_status(job({exited(0, 0, 1)})), 0);
  EXPECT_EQ(torchrun_exit_status(job({exited(0, 124, 1)})), 1);
  EXPECT_EQ(torchrun_exit_status(job({exited(0, 85, 1, true)}, SIGTERM)), 1);
  JobEnd late = job({killed(0, SIGTERM, 1, true)});
  late.late_reason = "it took too long";
  EXPECT_EQ(torchrun_exit_status(late), 124);
  EXPECT_THAT(failure_report(late), HasSubstr("stopped because it took too long"));
}

TEST(FailureReport, AProgramThatTheKernelRefusesIsOneLineThatBlamesNoRank) {
  RankEnd refused = exited(1, 126, 1);
  refused.was_executed = false;
  refused.error = ErrorRecord{"cannot execute p: Exec format error", std::nullopt};
  EXPECT_EQ(failure_report(job({refused, killed(0, SIGTERM, 2, true)})),
            "ddprun: cannot execute p: Exec format error\n");
  EXPECT_EQ(failure_report(job({refused, exited(0, 0, 2)})), "ddprun: rank 1: cannot execute p: Exec format error\n");
}

TEST(FailureReport, TheMessageCannotControlTheTerminal) {
  RankEnd culprit = exited(0, 1, 1);
  culprit.error = ErrorRecord{"a\x1b[2J\rb\x7f", std::nullopt};
  const std::string text = failure_report(job({culprit}));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\r")));
}

}  // namespace
}  // namespace launcher
