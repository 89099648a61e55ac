#include "launcher/local/output/rank_streams.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/outcome/job_end.h"
#include "tests/launcher/console.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
using ddp::test::read_file;

bool are_same(int a, int b) {
  struct stat first {};
  struct stat second {};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// The streams of a job's ranks, with pipes for ddprun's own output.
class RankStreamsTest {
 protected:
  RankStreamsTest() : output_(make_pipe()), error_(make_pipe()), null_(::open("/dev/null", O_RDWR | O_CLOEXEC)) {
    ::signal(SIGPIPE, SIG_IGN);  // as ddprun blocks it
    for (const Pipe* pipe : {&output_, &error_}) ::fcntl(pipe->reader.get(), F_SETFL, O_NONBLOCK);
    options_.nproc_per_node = 2;
    options_.working_folder = folder_.path().string();
  }
  RankStreams& make(int typed = -1) {
    const Redirected output(STDOUT_FILENO, output_.writer.get());
    const Redirected error(STDERR_FILENO, error_.writer.get());
    return streams_.emplace(loop_, options_, "run/7", folder_ / "errors", typed, ::getpgrp());
  }
  RankPlace place(int rank) const {
    return {.rank = rank, .local_rank = rank, .world_size = options_.nproc_per_node * options_.nnodes};
  }
  // A rank that writes and ends.
  static void write(const RankDescriptors& rank, int to, const std::string& bytes) {
    [[maybe_unused]] const ssize_t written = ::write(to, bytes.data(), bytes.size());
    REQUIRE(rank.output != 0);
  }
  void rounds() {
    for (int i = 0; i < 10; ++i) {
      loop_.call_at(EventLoop::Clock::now(), [] {});
      loop_.run_once();
    }
  }
  static std::string take(const Pipe& pipe) {
    std::string text(1 << 16, '\0');
    const ssize_t count = ::read(pipe.reader.get(), text.data(), text.size());
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }
  void finish() {
    streams_->finish_attempt([] { return false; });
  }
  std::string why_not() {
    try {
      make();
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "";
  }

  EventLoop loop_;
  ddp::test::TemporaryFolder folder_;
  Pipe output_;
  Pipe error_;
  UniqueFd null_;
  Options options_;
  std::optional<RankStreams> streams_;
};

TEST_CASE_METHOD(RankStreamsTest, "RankStreams: ranks write behind their prefixes and nobody reads but rank 0") {
  RankStreams& streams = make(77);
  streams.begin_attempt(0, 2);
  RankDescriptors first = streams.add_rank(place(0));
  RankDescriptors second = streams.add_rank(place(1));
  streams.all_added();
  CHECK(first.input == 77);
  CHECK(are_same(second.input, null_.get()));
  write(second, second.output, "one\n");
  write(first, first.error, "two\n");
  first = {};
  second = {};
  finish();
  CHECK(take(output_) == "[1] one\n");
  CHECK(take(error_) == "[0] two\n");
  CHECK(streams.problem() == "");
}

TEST_CASE_METHOD(RankStreamsTest,
                 "RankStreams: without prefixes ranks have ddprun's own output, and ddprun's lines go their way") {
  options_.no_prefix = true;
  RankStreams& streams = make();
  streams.begin_attempt(0, 2);
  const RankDescriptors rank = streams.add_rank(place(0));
  CHECK(rank.output == -1);
  CHECK(rank.error == -1);
  CHECK(rank.input == -1);
  streams.all_added();
  streams.messages().print("own line");
  finish();
  CHECK(take(error_) == "ddprun: own line\n");
  streams.update_window_sizes();
  streams.suspend_display(true);
}

TEST_CASE_METHOD(RankStreamsTest, "RankStreams: standard input is for the rank that was chosen, or for nobody") {
  options_.standard_input = {.to = StandardInput::To::kRank, .rank = 1};
  RankStreams& streams = make();
  streams.begin_attempt(0, 2);
  CHECK(are_same(streams.add_rank(place(0)).input, null_.get()));
  CHECK(streams.add_rank(place(1)).input == -1);
  options_.standard_input.to = StandardInput::To::kNone;
  CHECK(are_same(streams.add_rank(place(1)).input, null_.get()));
}

TEST_CASE_METHOD(RankStreamsTest, "RankStreams: a copy of what is typed goes to all, attempt after attempt") {
  options_.standard_input.to = StandardInput::To::kAll;
  const Pipe typed = make_pipe();
  RankStreams& streams = make(typed.reader.get());
  for (const std::string text : {"first\n", "second\n"}) {
    streams.begin_attempt(0, 2);
    RankDescriptors first = streams.add_rank(place(0));
    RankDescriptors second = streams.add_rank(place(1));
    streams.all_added();
    REQUIRE(::write(typed.writer.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    rounds();
    for (const RankDescriptors* rank : {&first, &second}) {
      std::string got(100, '\0');
      const ssize_t count = ::read(rank->input, got.data(), got.size());
      CHECK(got.substr(0, static_cast<std::size_t>(std::max<ssize_t>(0, count))) == text);
    }
    finish();
    char byte = 0;
    CHECK(::read(first.input, &byte, 1) == 0);
  }
}

TEST_CASE_METHOD(RankStreamsTest, "RankStreams: a rank that does not exist cannot have the input") {
  options_.standard_input = {.to = StandardInput::To::kRank, .rank = 2};
  CHECK(why_not() == "--stdin 2: there is no such rank, the last is 1");
  options_.nnodes = 2;  // the others may have it
  RankStreams& streams = make();
  CHECK_THROWS_WITH(streams.begin_attempt(0, 2), "--stdin 2: there is no such rank, the last is 1");
  streams.begin_attempt(0, 4);
}

TEST_CASE_METHOD(RankStreamsTest, "RankStreams: log files are in torchrun's layout, a folder for each attempt") {
  options_.log_folder = folder_ / "a/logs";
  options_.redirects = *StreamSelection::parse("0:3");
  options_.tee = *StreamSelection::parse("1:2");
  RankStreams& streams = make();
  const std::string log = streams.layout().log_folder;
  CHECK_THAT(log, StartsWith((folder_ / "a/logs/run_7_").string()));
  CHECK(take(error_) == "ddprun: log files: " + log + "\n");
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::string number = std::to_string(attempt);
    streams.begin_attempt(attempt, 2);
    RankDescriptors first = streams.add_rank(place(0));
    RankDescriptors second = streams.add_rank(place(1));
    streams.all_added();
    write(first, first.output, "out " + number + "\n");
    write(first, first.error, "err " + number + "\n");
    write(second, second.error, "tee " + number + "\n");
    first = {};
    second = {};
    finish();
    const std::string folder = log + "/attempt_" + number;
    CHECK(read_file(folder + "/0/stdout.log") == "out " + number + "\n");
    CHECK(read_file(folder + "/0/stderr.log") == "err " + number + "\n");
    CHECK(read_file(folder + "/1/stderr.log") == "tee " + number + "\n");
    CHECK_FALSE(std::filesystem::exists(folder + "/1/stdout.log"));
  }
  CHECK(take(error_) == "[1] tee 0\n[1] tee 1\n");
  CHECK(take(output_) == "");
}

TEST_CASE_METHOD(RankStreamsTest, "RankStreams: a relative log folder is where ddprun is, whatever the ranks do") {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  options_.log_folder = "logs";
  make();
  std::filesystem::current_path(before);
  CHECK_THAT(streams_->layout().log_folder, StartsWith("/"));
  CHECK(std::filesystem::is_directory(streams_->layout().log_folder));
}

TEST_CASE_METHOD(RankStreamsTest, "RankStreams: a folder for each rank has one file for all attempts") {
  options_.output_folder = folder_ / "out";
  options_.nproc_per_node = 11;
  RankStreams& streams = make();
  for (int attempt = 0; attempt < 2; ++attempt) {
    streams.begin_attempt(attempt, 11);
    RankDescriptors rank = streams.add_rank(place(3));
    streams.all_added();
    write(rank, rank.output, "attempt " + std::to_string(attempt) + "\n");
    rank = {};
    finish();
  }
  CHECK(read_file(folder_ / "out/rank.03/stdout") == "attempt 0\nattempt 1\n");
  CHECK(read_file(folder_ / "out/rank.03/stderr") == "");
  CHECK(take(output_) == "[3] attempt 0\n[3] attempt 1\n");
}

TEST_CASE_METHOD(RankStreamsTest, "RankStreams: folders that cannot be made are refused by the option's name") {
  ddp::test::write_file(folder_ / "file", "");
  options_.log_folder = folder_ / "file/logs";
  CHECK_THAT(why_not(), StartsWith("--log_dir: cannot create the folder"));
  options_.log_folder.clear();
  options_.output_folder = folder_ / "file/out";
  CHECK_THAT(why_not(), StartsWith("--output_filename: cannot create the folder"));
  options_.output_folder.clear();
  options_.tee = *StreamSelection::parse("3");
  const char* before = ::getenv("TMPDIR");
  const std::string kept = before != nullptr ? before : "";
  ::setenv("TMPDIR", (folder_ / "file/tmp").c_str(), 1);
  CHECK_THAT(why_not(), StartsWith("TMPDIR: cannot create a folder in "));
  ::setenv("TMPDIR", (folder_ / "mistyped").c_str(), 1);
  CHECK_THAT(why_not(), StartsWith("TMPDIR: cannot create a folder in ") && EndsWith("No such file or directory"));
  CHECK_FALSE(std::filesystem::exists(folder_ / "mistyped"));
  before != nullptr ? ::setenv("TMPDIR", kept.c_str(), 1) : ::unsetenv("TMPDIR");
}

TEST_CASE_METHOD(
    RankStreamsTest,
    "RankStreams: outputs that need more descriptors than there can be are refused before anything starts") {
  options_.nproc_per_node = Options::kMaxLocalRanks;
  const std::string error = why_not();
  CHECK_THAT(error, StartsWith("65536 ranks with these outputs need "));
  CHECK_THAT(error, ContainsSubstring("ulimit -Hn"));
}

TEST_CASE_METHOD(RankStreamsTest,
                 "RankStreams: a failed rank's report has its last lines and its log file, another's has none") {
  options_.log_folder = folder_ / "logs";
  options_.redirects = *StreamSelection::parse("0:2");
  RankStreams& streams = make();
  streams.begin_attempt(0, 2);
  RankDescriptors first = streams.add_rank(place(0));
  RankDescriptors second = streams.add_rank(place(1));
  streams.all_added();
  write(first, first.error, "in a file\n");
  write(second, second.error, "relayed\n");
  first = {};
  second = {};
  finish();
  JobEnd end;
  end.ranks = {{.rank = 0, .local_rank = 0, .exit_code = 1}, {.rank = 1, .local_rank = 1, .signal = SIGSEGV}};
  streams.describe(end);
  CHECK(end.ranks[0].last_lines == "in a file\n");
  CHECK(end.ranks[0].log_file == streams.layout().log_folder + "/attempt_0/0/stderr.log");
  CHECK(end.ranks[1].last_lines == "relayed\n");
  CHECK(end.ranks[1].log_file == "");
  end.ranks = {{.rank = 1, .local_rank = 1}};
  streams.describe(end);
  CHECK(end.ranks[0].last_lines == "");
}

TEST_CASE_METHOD(RankStreamsTest, "RankStreams: ranks that are not shown still have their last words kept") {
  options_.console_ranks = {0};
  RankStreams& streams = make();
  streams.begin_attempt(0, 2);
  RankDescriptors hidden = streams.add_rank(place(1));
  CHECK(are_same(hidden.output, null_.get()));
  streams.all_added();
  write(hidden, hidden.error, "last words\n");
  hidden = {};
  finish();
  JobEnd end;
  end.ranks = {{.rank = 1, .local_rank = 1, .exit_code = 1}};
  streams.describe(end);
  CHECK(end.ranks[0].last_lines == "last words\n");
  CHECK(take(error_) == "");
}

// The debugged rank is a number in the whole job, and may be on another node.
TEST_CASE_METHOD(RankStreamsTest,
                 "RankStreams: with several nodes, the rank under the debugger is not taken for a local one") {
  options_.nnodes = 2;
  options_.node_rank = 1;
  options_.nproc_per_node = 1;
  options_.debug_rank = 0;
  RankStreams& streams = make();
  streams.begin_attempt(0, 2);
  RankDescriptors rank = streams.add_rank({.rank = 1, .local_rank = 0, .world_size = 2});
  streams.all_added();
  write(rank, rank.output, "of rank 1\n");
  rank = {};
  finish();
  CHECK(take(output_) == "[1] of rank 1\n");
}

TEST_CASE_METHOD(RankStreamsTest, "RankStreams: what nobody read is counted, and is no reason to wait") {
  RankStreams& streams = make();
  streams.begin_attempt(0, 2);
  RankDescriptors rank = streams.add_rank(place(0));
  streams.all_added();
  ::fcntl(rank.output, F_SETFL, O_NONBLOCK);
  for (int i = 0; i < 100; ++i) {
    write(rank, rank.output, std::string(60'000, 'x') + "\n");
    rounds();
  }
  rank = {};
  int asked = 0;
  streams.finish_attempt([&] { return ++asked > 20; });  // asked again though nothing happens
  CHECK_THAT(streams.problem(), ContainsSubstring("bytes were dropped because no process read them in time"));
}

}  // namespace
}  // namespace launcher
