#include "launcher/local/report/failure_report.h"

#include <cmath>
#include <csignal>
#include <string>
#include <vector>

#include "launcher/plan/outcome/describe.h"
#include "launcher/plan/outcome/first_failure.h"
#include "launcher/plan/outcome/job_status.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using std::chrono::milliseconds;

const auto kStart = std::chrono::system_clock::from_time_t(1'700'000'000);

RankEnd exited(int rank, int code, int ms, bool told = false) {
  return {.rank = rank,
          .local_rank = rank,
          .pid = 100 + rank,
          .exit_code = code,
          .stop_requested = told,
          .time = kStart + milliseconds(ms)};
}
RankEnd killed(int rank, int signal, int ms, bool told = false) {
  RankEnd end = exited(rank, 0, ms, told);
  end.signal = signal;
  return end;
}
JobEnd ended_job(std::vector<RankEnd> ranks, int stop_signal = 0) {
  return {.ranks = std::move(ranks), .start = kStart, .stop_signal = stop_signal, .host = "node7"};
}
double at(double seconds_after_start) {
  return 1'700'000'000 + seconds_after_start;
}

TEST_CASE("ExitStatusOf: success is zero and silent") {
  const JobEnd end = ended_job({exited(0, 0, 10), exited(1, 0, 20)});
  CHECK(exit_status(end) == 0);
  CHECK(failure_report(end) == "");
}

TEST_CASE("ExitStatusOf: is the first failure's, not the lowest rank's") {
  const JobEnd end = ended_job({exited(2, 0, 5), exited(3, 33, 10), exited(0, 1, 11), killed(1, SIGTERM, 12, true)});
  CHECK(first_failure(end) == 1U);
  CHECK(exit_status(end) == 33);
}

TEST_CASE("ExitStatusOf: a signal is 128 plus its number") {
  CHECK(exit_status(ended_job({killed(0, SIGSEGV, 1)})) == 139);
  CHECK(exit_status(ended_job({killed(0, SIGKILL, 1)})) == 137);
}

TEST_CASE("ExitStatusOf: a job that was told to stop has its ranks' status or the signal's") {
  CHECK(exit_status(ended_job({exited(0, 0, 1, true), exited(1, 0, 1, true)}, SIGTERM)) == 0);
  CHECK(exit_status(ended_job({exited(0, 85, 1, true), exited(1, 0, 1, true)}, SIGTERM)) == 85);
  CHECK(exit_status(ended_job({killed(0, SIGTERM, 1, true), exited(1, 85, 1, true)}, SIGTERM)) == 143);
  CHECK(exit_status(ended_job({exited(0, 1, 1, true)}, SIGINT)) == 130);
  CHECK(failure_report(ended_job({exited(0, 1, 1, true)}, SIGINT)) == "");
}

TEST_CASE("ExitStatusOf: a failure before being told to stop counts") {
  CHECK(exit_status(ended_job({exited(0, 7, 1), killed(1, SIGTERM, 2, true)}, SIGTERM)) == 7);
}

TEST_CASE("FirstFailure: an earlier error file outranks an earlier exit") {
  RankEnd slow = exited(1, 51, 3000, true);  // took 2.5 s to end, and was asked to stop meanwhile
  slow.error = ErrorRecord{"culprit", at(0.5)};
  RankEnd victim = exited(0, 50, 1000);
  victim.error = ErrorRecord{"connection closed by peer", at(0.9)};
  CHECK(exit_status(ended_job({victim, slow})) == 51);
}

TEST_CASE("FirstFailure: a culprit that our own signal ended has status one") {
  RankEnd slow = killed(1, SIGTERM, 3000, /*told=*/true);
  slow.error = ErrorRecord{"culprit", at(0.5)};
  CHECK(exit_status(ended_job({exited(0, 50, 1000), slow})) == 1);
}

TEST_CASE("FirstFailure: of ranks that fail alike the first one is not said to be later") {
  RankEnd first = killed(2, SIGTERM, 505, /*told=*/true);  // by ddprun, when the other one had ended
  first.error = ErrorRecord{"the option is wrong", at(0.4961)};
  RankEnd second = exited(0, 1, 500);
  second.error = ErrorRecord{"the option is wrong", at(0.4981)};
  const std::string report = failure_report(ended_job({second, first}));
  CHECK_THAT(report, ContainsSubstring("rank 2 failed first: it reported an error, and was stopped by ddprun\n"));
  CHECK_THAT(report,
             ContainsSubstring("later:  rank 0 exited with status 1, 0.002 s after it, with the same message\n"));
  CHECK_THAT(report, !ContainsSubstring("SIGTERM"));
}

TEST_CASE("FirstFailure: a time in whole seconds does not decide within that second") {
  RankEnd victim = exited(1, 51, 800);
  victim.error = ErrorRecord{"written at some time in second 0", at(0)};
  CHECK(exit_status(ended_job({exited(0, 50, 500), victim})) == 50);

  victim.time = kStart + milliseconds(2500);
  CHECK(exit_status(ended_job({exited(0, 50, 500), victim})) == 50);
  CHECK(exit_status(ended_job({exited(0, 50, 1500), victim})) == 51);  // in second 0, and the other ended later
}

TEST_CASE("FirstFailure: unbelievable times are ignored") {
  for (const double time : {at(-100.5), at(1e6), 0.0, -1.0, std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    CAPTURE(time);
    RankEnd odd = exited(1, 51, 900);
    odd.error = ErrorRecord{"odd", time};
    CHECK(exit_status(ended_job({exited(0, 50, 500), odd})) == 50);
    CHECK(failure_time(odd, ended_job({odd})) == at(0.9));
  }
}

TEST_CASE("FirstFailure: a rank whose peer was gone is not the culprit") {
  RankEnd victim = exited(0, 1, 500);
  victim.error = ErrorRecord{"RuntimeError: [../gloo/pair.cc] Connection closed by peer [127.0.0.1]:1234", at(0)};
  RankEnd culprit = exited(1, 51, 700, /*told=*/true);
  culprit.error = ErrorRecord{"ValueError: no such shard", at(0)};
  CHECK(exit_status(ended_job({victim, culprit})) == 51);
  CHECK_THAT(
      failure_report(ended_job({victim, culprit})),
      ContainsSubstring("rank 0 exited with status 1, 0.200 s before that: its connection to another rank was closed"));

  culprit.stop_requested = false;
  culprit.error.reset();
  CHECK(exit_status(ended_job({victim, culprit})) == 51);

  victim.error->message = "all_reduce #1 (sum) of Float [1]: did not take part in it: rank 1 (it has closed its group)";
  CHECK(exit_status(ended_job({victim, culprit})) == 51);

  RankEnd stopped = exited(1, 51, 5000, /*told=*/true);  // its error came later, from being stopped
  stopped.error = ErrorRecord{"interrupted", at(4.5)};
  CHECK(exit_status(ended_job({victim, stopped})) == 1);
  CHECK(exit_status(ended_job({victim, killed(1, SIGTERM, 600, true)})) == 1);
}

TEST_CASE("FirstFailure: an error file of a rank that ended well is nothing") {
  RankEnd fine = exited(1, 0, 900);
  fine.error = ErrorRecord{"recovered", at(0.1)};
  CHECK(first_failure(ended_job({fine, exited(0, 0, 950)})) == std::nullopt);
}

TEST_CASE("FailureReport: says rank, how, when, where and what became of the others") {
  RankEnd culprit = killed(3, SIGSEGV, 1204);
  culprit.core_dumped = true;
  culprit.error = ErrorRecord{"line one\nline two", std::nullopt};
  const std::string text = failure_report(ended_job(
      {exited(5, 0, 10), culprit, exited(4, 1, 1210), killed(0, SIGTERM, 1220, true), killed(1, SIGKILL, 1230, true)}));
  CHECK_THAT(text, ContainsSubstring("rank 3 failed first: it was killed by SIGSEGV (core dumped)"));
  CHECK_THAT(text, ContainsSubstring("1.204 s after the start"));
  CHECK_THAT(text, ContainsSubstring("host node7, local rank 3, process 103"));
  CHECK_THAT(text, ContainsSubstring("    line one\n    line two\n"));
  CHECK_THAT(text, ContainsSubstring("rank 4 exited with status 1, 0.006 s after it"));
  CHECK_THAT(text, ContainsSubstring("ranks 0, 1 were stopped by ddprun"));
  CHECK_THAT(text, ContainsSubstring("rank 5 had ended normally"));
  CHECK(std::count(text.begin(), text.end(), '\n') <= 10);
}

TEST_CASE(
    "FailureReport: a rank that ended with status 0 while others needed it is in the headline, and nowhere else") {
  RankEnd victim = exited(0, 1, 500);
  victim.error =
      ErrorRecord{"all_reduce failed: ...; did not take part in it: rank 1 (no answer: ended, stopped or unreachable)",
                  std::nullopt};
  for (const bool closed : {false, true}) {
    if (closed) victim.error->message = "Connection closed by peer";
    const std::string text = failure_report(ended_job({exited(1, 0, 400), victim, exited(2, 0, 600)}));
    CHECK_THAT(text, Catch::Matchers::StartsWith(
                         "ddprun: rank 1 ended with status 0 while other ranks still needed it; of the other ranks, "
                         "rank 0 failed first: it exited with status 1\n"));
    CHECK_THAT(text, ContainsSubstring("  others: rank 2 had ended normally\n"));
  }
  // Its own failure has nothing to do with that.
  victim.error->message = "out of memory";
  const std::string text = failure_report(ended_job({exited(1, 0, 400), victim}));
  CHECK_THAT(text, Catch::Matchers::StartsWith("ddprun: rank 0 failed first: ") &&
                       ContainsSubstring("  others: rank 1 had ended normally\n"));
}

TEST_CASE("FailureReport: ranks that fail with one message are reported once, with one copy of the message") {
  const std::string words =
      "all_reduce number 41 failed: " + std::string(300, 'x') + "; did not take part in it: rank 1";
  const auto failed = [&](int rank, int ms, const std::string& said) {
    RankEnd end = exited(rank, 1, ms);
    end.error = ErrorRecord{"rank " + std::to_string(rank) + " of 6: " + said, std::nullopt};
    return end;
  };
  JobEnd job = ended_job({exited(1, 0, 400), failed(0, 500, words), failed(2, 504, words), failed(3, 510, words + "\n"),
                          failed(4, 511, "out of memory")});
  std::string text = failure_report(job);
  CHECK_THAT(text, ContainsSubstring("\n    rank 0 of 6: " + words + "\n"));
  CHECK(text.find(words) == text.rfind(words));
  CHECK_THAT(text,
             ContainsSubstring("\n  later:  ranks 2, 3 exited with status 1, within 0.010 s, with the same message\n"
                               "  later:  rank 4 exited with status 1, 0.011 s after it\n"));
  job.ranks.erase(job.ranks.begin() + 3);
  CHECK_THAT(failure_report(job),
             ContainsSubstring("rank 2 exited with status 1, 0.004 s after it, with the same message\n"));
}

TEST_CASE("FailureReport: stays short with many ranks and a long message") {
  std::vector<RankEnd> ranks;
  for (int rank = 0; rank < 1000; ++rank) ranks.push_back(exited(rank, 1, rank));
  std::string message;
  for (int line = 0; line < 1000; ++line) message += "line " + std::to_string(line) + std::string(2000, 'x') + "\n";
  ranks.front().error = ErrorRecord{message + "the last line", std::nullopt};
  const std::string text = failure_report(ended_job(ranks));
  CHECK(text.size() < 8000U);
  CHECK_THAT(text, ContainsSubstring("the last line"));
  CHECK_THAT(text, ContainsSubstring("991 more failed as well"));
}

TEST_CASE("FailureReport: has the last lines of standard error and names the log file") {
  RankEnd culprit = exited(0, 1, 1);
  culprit.last_lines = "Traceback\nValueError: no such shard\n";
  culprit.log_file = "logs/0/stderr.log";
  CHECK_THAT(
      failure_report(ended_job({culprit})),
      ContainsSubstring("  stderr:\n    Traceback\n    ValueError: no such shard\n  log:    logs/0/stderr.log\n"));

  culprit.error = ErrorRecord{"ValueError: no such shard", std::nullopt};  // said once
  CHECK_THAT(failure_report(ended_job({culprit})), !ContainsSubstring("stderr:"));
  culprit.error = ErrorRecord{"Traceback ...\nValueError: no such shard\n", std::nullopt};
  CHECK_THAT(failure_report(ended_job({culprit})), !ContainsSubstring("stderr:"));
  culprit.error = ErrorRecord{"something else", std::nullopt};
  CHECK_THAT(failure_report(ended_job({culprit})), ContainsSubstring("stderr:"));
}

TEST_CASE("FirstFailure: last lines say that the peer was gone") {
  RankEnd victim = exited(0, 1, 500);
  victim.last_lines = "RuntimeError: [../gloo/pair.cc] Connection closed by peer [127.0.0.1]:1234\n";
  CHECK(exit_status(ended_job({victim, exited(1, 51, 700)})) == 51);
  CHECK(exit_status(ended_job({victim, killed(1, SIGTERM, 700, /*told=*/true)})) == 1);
}

TEST_CASE("FailureReport: names GPU, attempt and hints") {
  JobEnd end = ended_job({killed(2, SIGKILL, 1000)});
  end.gpu = "GPU 2 (NVIDIA H200, GPU-12)";
  end.attempt = 3;
  end.hints = {"out of memory"};
  const std::string text = failure_report(end);
  CHECK_THAT(text, ContainsSubstring("process 102, GPU 2 (NVIDIA H200, GPU-12)\n"));
  CHECK_THAT(text, ContainsSubstring("1.000 s after the start of restart 3\n"));
  CHECK_THAT(text, ContainsSubstring("  hint:   out of memory\n"));
}

TEST_CASE("ExitStatusOf: torchrun's is one for whatever comes from the ranks") {
  CHECK(torchrun_exit_status(ended_job({exited(0, 0, 1)})) == 0);
  CHECK(torchrun_exit_status(ended_job({exited(0, 124, 1)})) == 1);
  CHECK(torchrun_exit_status(ended_job({exited(0, 85, 1, true)}, SIGTERM)) == 1);
  JobEnd late = ended_job({killed(0, SIGTERM, 1, true)});
  late.timeout_reason = "it took too long";
  CHECK(torchrun_exit_status(late) == 124);
  CHECK_THAT(failure_report(late), ContainsSubstring("stopped because it took too long"));
}

TEST_CASE("FailureReport: a program that the kernel refuses is one line that blames no rank") {
  RankEnd refused = exited(1, 126, 1);
  refused.was_executed = false;
  refused.error = ErrorRecord{"cannot execute p: Exec format error", std::nullopt};
  CHECK(failure_report(ended_job({refused, killed(0, SIGTERM, 2, true)})) ==
        "ddprun: cannot execute p: Exec format error\n");
  CHECK(failure_report(ended_job({refused, exited(0, 0, 2)})) ==
        "ddprun: rank 1: cannot execute p: Exec format error\n");
}

TEST_CASE("FailureReport: the message cannot control the terminal") {
  RankEnd culprit = exited(0, 1, 1);
  culprit.error = ErrorRecord{"a\x1b[2J\rb\x7f", std::nullopt};
  const std::string text = failure_report(ended_job({culprit}));
  CHECK_THAT(text, !ContainsSubstring("\x1b"));
  CHECK_THAT(text, !ContainsSubstring("\r"));
}

TEST_CASE("FailureReport: nor with control characters of eight bits, and what is not UTF-8 is shown as such") {
  RankEnd culprit = exited(0, 1, 1);
  culprit.error = ErrorRecord{
      "a\xc2\x9b"
      "2Jb \x9b c\xff",
      std::nullopt};
  CHECK_THAT(failure_report(ended_job({culprit})), ContainsSubstring("    a 2Jb \xef\xbf\xbd c\xef\xbf\xbd\n"));
}

TEST_CASE("FailureReport: a long line is not cut within a character") {
  for (const std::size_t shift : {0U, 1U, 2U}) {
    CAPTURE(shift);
    RankEnd culprit = exited(0, 1, 1);
    std::string line(shift, 'x');
    while (line.size() < 2'000) line += "\xe4\xb8\xad";
    culprit.error = ErrorRecord{line, std::nullopt};
    CHECK_THAT(failure_report(ended_job({culprit})),
               ContainsSubstring("\xe4\xb8\xad\n") && !ContainsSubstring("\xef\xbf\xbd"));
  }
}

TEST_CASE("FailureReport: another node's failure is told with all that is known there") {
  JobEnd there = ended_job({exited(3, 7, 250)});
  there.ranks[0].last_lines = "no such shard";
  JobEnd here = ended_job({killed(0, SIGTERM, 300, true)});
  here.elsewhere = FailureNotice{.node = 1,
                                 .exit_status = 7,
                                 .text = "rank 3 on host node7 exited with status 7",
                                 .details = failure_details(there, 0)};
  const std::string own = failure_report(there);
  CHECK(failure_report(here) == "ddprun: stopped because of node 1: rank 3 on host node7 exited with status 7\n" +
                                    own.substr(own.find('\n') + 1));
  CHECK_THAT(own, ContainsSubstring("no such shard"));
}

TEST_CASE("FailureReport: the rank that the other nodes were told of stays the first one") {
  JobEnd end = ended_job({exited(1, 7, 250), exited(0, 3, 260, true)});
  end.ranks[1].error = ErrorRecord{"it was earlier", at(0.1)};
  CHECK(first_failure(end) == 1U);
  end.announced = 1;
  CHECK(first_failure(end) == 0U);
  CHECK(exit_status(end) == 7);
}

}  // namespace
}  // namespace launcher
