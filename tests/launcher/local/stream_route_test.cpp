#include "launcher/local/output/stream_route.h"

#include "tests/support/catch.h"

namespace launcher {
namespace {

using To = StreamRoute::To;

const LogLayout kRouteLayout{.error_folder = "/errors", .log_folder = "/logs/run", .output_folder = "/out"};

Options ranks(int count) {
  Options options;
  options.nproc_per_node = count;
  return options;
}

StreamRoute route(const Options& options, int local_rank, Stream stream) {
  const RankPlace place{.rank = 100 + local_rank, .local_rank = local_rank, .world_size = 200};
  return route_stream(options, kRouteLayout, 2, place, stream);
}

TEST_CASE("LogLayout: is torchrun's") {
  const RankPlace place{.rank = 7, .local_rank = 3, .world_size = 1000};
  CHECK(kRouteLayout.error_file(2, place) == "/logs/run/attempt_2/3/error.json");
  CHECK(kRouteLayout.log_file(0, place, Stream::kError) == "/logs/run/attempt_0/3/stderr.log");
  CHECK(kRouteLayout.filtered_file(1, Stream::kOutput) == "/logs/run/attempt_1/filtered_stdout.log");
  CHECK(kRouteLayout.output_file(place, Stream::kOutput) == "/out/rank.007/stdout");
  CHECK(LogLayout{.error_folder = "/errors"}.error_file(2, place) == "/errors/attempt_2_rank_7_error.json");
}

TEST_CASE("StreamRoute: one rank is connected directly") {
  CHECK(route(ranks(1), 0, Stream::kOutput).to == To::kConsole);
  CHECK(route(ranks(2), 0, Stream::kOutput).to == To::kRelay);
  Options options = ranks(2);
  options.no_prefix = true;
  CHECK(route(options, 1, Stream::kError).to == To::kConsole);
  options = ranks(1);
  options.prefix = "> ";
  CHECK(route(options, 0, Stream::kOutput).to == To::kRelay);
}

TEST_CASE("StreamRoute: a redirected stream is the file itself") {
  Options options = ranks(12);
  options.redirects = *StreamSelection::parse("11:1");
  const StreamRoute out = route(options, 11, Stream::kOutput);
  CHECK(out.to == To::kFile);
  CHECK_FALSE(out.is_shown);
  CHECK(out.file == "/logs/run/attempt_2/11/stdout.log");
  CHECK(route(options, 11, Stream::kError).file == "");
  CHECK(route(options, 11, Stream::kError).is_shown);
  CHECK(route(options, 1, Stream::kOutput).is_shown);
}

TEST_CASE("StreamRoute: a teed stream is shown too") {
  Options options = ranks(1);
  options.tee = *StreamSelection::parse("3");
  options.redirects = *StreamSelection::parse("3");
  const StreamRoute err = route(options, 0, Stream::kError);
  CHECK(err.to == To::kRelay);
  CHECK(err.is_shown);
  CHECK(err.file == "/logs/run/attempt_2/0/stderr.log");

  options = ranks(1);
  options.output_folder = "/out";
  CHECK(route(options, 0, Stream::kError).file == "/out/rank.100/stderr");
  CHECK(route(options, 0, Stream::kError).is_shown);
}

TEST_CASE("StreamRoute: the filter is for the console only") {
  Options options = ranks(4);
  options.console_ranks = {2};
  CHECK(route(options, 2, Stream::kOutput).is_shown);
  CHECK(route(options, 1, Stream::kOutput).to == To::kNothing);
  CHECK(route(options, 1, Stream::kError).to == To::kRelay);  // for the report
  CHECK_FALSE(route(options, 1, Stream::kError).is_shown);
  options.tee = *StreamSelection::parse("3");
  CHECK(route(options, 1, Stream::kOutput).to == To::kFile);
  CHECK(route(options, 2, Stream::kOutput).to == To::kRelay);
}

TEST_CASE("StreamRoute: lines that are looked for are read") {
  Options options = ranks(1);
  options.redirects = *StreamSelection::parse("3");
  options.output_filters = {"loss"};
  CHECK(route(options, 0, Stream::kOutput).to == To::kRelay);
  CHECK_FALSE(route(options, 0, Stream::kOutput).is_shown);
  CHECK(route(options, 0, Stream::kError).to == To::kFile);
}

TEST_CASE("StreamRoute: descriptors grow with the outputs") {
  Options options = ranks(100);
  const std::size_t prefixed = needed_descriptors(options);
  options.tee = *StreamSelection::parse("3");
  CHECK(needed_descriptors(options) == prefixed + 200);
  options.tee = StreamSelection();
  options.redirects = *StreamSelection::parse("3");
  CHECK(needed_descriptors(options) == prefixed - 200);
  options.standard_input.to = StandardInput::To::kAll;
  CHECK(needed_descriptors(options) == prefixed - 100);
}

}  // namespace
}  // namespace launcher
