#include "launcher/output/stream_route.h"

#include <gtest/gtest.h>

namespace launcher {
namespace {

using To = StreamRoute::To;

const LogLayout kLayout{.error_folder = "/errors", .log_folder = "/logs/run", .output_folder = "/out"};

Options ranks(int count) {
  Options options;
  options.nproc_per_node = count;
  return options;
}

StreamRoute route(const Options& options, int local_rank, Stream stream) {
  const RankPlace place{.rank = 100 + local_rank, .local_rank = local_rank, .world_size = 200};
  return route_stream(options, kLayout, 2, place, stream);
}

TEST(LogLayout, IsTorchruns) {
  const RankPlace place{.rank = 7, .local_rank = 3, .world_size = 1000};
  EXPECT_EQ(kLayout.error_file(2, place), "/logs/run/attempt_2/3/error.json");
  EXPECT_EQ(kLayout.log_file(0, place, Stream::kError), "/logs/run/attempt_0/3/stderr.log");
  EXPECT_EQ(kLayout.filtered_file(1, Stream::kOutput), "/logs/run/attempt_1/filtered_stdout.log");
  EXPECT_EQ(kLayout.output_file(place, Stream::kOutput), "/out/rank.007/stdout");
  EXPECT_EQ((LogLayout{.error_folder = "/errors"}.error_file(2, place)), "/errors/attempt_2_rank_7_error.json");
}

TEST(StreamRoute, OneRankIsConnectedDirectly) {
  EXPECT_EQ(route(ranks(1), 0, Stream::kOutput).to, To::kConsole);
  EXPECT_EQ(route(ranks(2), 0, Stream::kOutput).to, To::kRelay);
  Options options = ranks(2);
  options.no_prefix = true;
  EXPECT_EQ(route(options, 1, Stream::kError).to, To::kConsole);
  options = ranks(1);
  options.prefix = "> ";
  EXPECT_EQ(route(options, 0, Stream::kOutput).to, To::kRelay);
}

TEST(StreamRoute, ARedirectedStreamIsTheFileItself) {
  Options options = ranks(12);
  options.redirects = *StreamSelection::parse("11:1");
  const StreamRoute out = route(options, 11, Stream::kOutput);
  EXPECT_EQ(out.to, To::kFile);
  EXPECT_FALSE(out.is_shown);
  EXPECT_EQ(out.file, "/logs/run/attempt_2/11/stdout.log");
  EXPECT_EQ(route(options, 11, Stream::kError).file, "");
  EXPECT_TRUE(route(options, 11, Stream::kError).is_shown);
  EXPECT_TRUE(route(options, 1, Stream::kOutput).is_shown);
}

TEST(StreamRoute, ATeedStreamIsShownToo) {
  Options options = ranks(1);
  options.tee = *StreamSelection::parse("3");
  options.redirects = *StreamSelection::parse("3");
  const StreamRoute err = route(options, 0, Stream::kError);
  EXPECT_EQ(err.to, To::kRelay);
  EXPECT_TRUE(err.is_shown);
  EXPECT_EQ(err.file, "/logs/run/attempt_2/0/stderr.log");

  options = ranks(1);
  options.output_folder = "/out";
  EXPECT_EQ(route(options, 0, Stream::kError).file, "/out/rank.100/stderr");
  EXPECT_TRUE(route(options, 0, Stream::kError).is_shown);
}

TEST(StreamRoute, TheFilterIsForTheConsoleOnly) {
  Options options = ranks(4);
  options.console_ranks = {2};
  EXPECT_TRUE(route(options, 2, Stream::kOutput).is_shown);
  EXPECT_EQ(route(options, 1, Stream::kOutput).to, To::kNothing);
  EXPECT_EQ(route(options, 1, Stream::kError).to, To::kRelay);  // for the report
  EXPECT_FALSE(route(options, 1, Stream::kError).is_shown);
  options.tee = *StreamSelection::parse("3");
  EXPECT_EQ(route(options, 1, Stream::kOutput).to, To::kFile);
  EXPECT_EQ(route(options, 2, Stream::kOutput).to, To::kRelay);
}

TEST(StreamRoute, LinesThatAreLookedForAreRead) {
  Options options = ranks(1);
  options.redirects = *StreamSelection::parse("3");
  options.output_filters = {"loss"};
  EXPECT_EQ(route(options, 0, Stream::kOutput).to, To::kRelay);
  EXPECT_FALSE(route(options, 0, Stream::kOutput).is_shown);
  EXPECT_EQ(route(options, 0, Stream::kError).to, To::kFile);
}

TEST(StreamRoute, DescriptorsGrowWithTheOutputs) {
  Options options = ranks(100);
  const std::size_t prefixed = needed_descriptors(options);
  options.tee = *StreamSelection::parse("3");
  EXPECT_EQ(needed_descriptors(options), prefixed + 200);
  options.tee = StreamSelection();
  options.redirects = *StreamSelection::parse("3");
  EXPECT_EQ(needed_descriptors(options), prefixed - 200);
  options.standard_input.to = StandardInput::To::kAll;
  EXPECT_EQ(needed_descriptors(options), prefixed - 100);
}

}  // namespace
}  // namespace launcher
