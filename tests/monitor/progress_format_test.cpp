// Lines of progress against what tqdm 4.67 gives for the same numbers (tqdm.format_meter).
#include <limits>

#include <ddprun/detail/monitor/progress_format.h>

#include "tests/support/catch.h"

namespace ddp {
namespace {

using Seconds = std::chrono::duration<double>;

TEST_CASE("ProgressFormat: has the layout of tqdm") {
  const ProgressState train{.description = "train",
                            .done = 2,
                            .total = 8,
                            .elapsed = Seconds(1),
                            .rate = 2,
                            .unit = "it",
                            .postfix = "loss=0.5"};
  CHECK(format_progress(train, 79) ==
        "train:  25%|██████▊                    | 2/8 [00:01<00:03,  2.00it/s, loss=0.5]");
  CHECK(format_progress({.total = 8}, 60) == "  0%|                                 | 0/8 [00:00<?, ?it/s]");
  CHECK(format_progress({.description = "d", .done = 8, .total = 8, .elapsed = Seconds(3725), .rate = 0.25}, 60) ==
        "d: 100%|████████████████████| 8/8 [1:02:05<00:00,  4.00s/it]");
  CHECK(format_progress({.done = 3, .total = 7, .elapsed = Seconds(61), .rate = 0.05, .unit = "img"}, 50) ==
        " 43%|██████        | 3/7 [01:01<01:20, 20.00s/img]");
  CHECK(format_progress({.done = 5, .total = 9, .elapsed = Seconds(10), .rate = 123456.789}, 70) ==
        " 56%|█████████████████▏             | 5/9 [00:10<00:00, 123456.79it/s]");
}

TEST_CASE("ProgressFormat: without a total there is no bar and no time left") {
  CHECK(format_progress({.description = "x", .done = 1234, .elapsed = Seconds(12), .rate = 100.126}, 60) ==
        "x: 1234it [00:12, 100.13it/s]");
  INFO("more than there are");
  CHECK(format_progress({.done = 9, .total = 8}, 0) == "9it [00:00, ?it/s]");
}

TEST_CASE("ProgressFormat: width 0 leaves out the bar") {
  CHECK(format_progress({.done = 1, .total = 3, .elapsed = Seconds(1), .rate = 1}, 0) ==
        " 33% 1/3 [00:01<00:02,  1.00it/s]");
}

TEST_CASE("ProgressFormat: a narrow terminal cuts the line between characters") {
  CHECK(format_progress({.description = "äöü", .total = 3}, 2) == "äö");
  CHECK(format_progress({.total = 3}, 8) == "  0% 0/3");
  CHECK(format_progress({.done = 5}, 2) == "5i");
  UNSCOPED_INFO("half a character cannot be shown");
  CHECK(format_progress({.description = "训练", .total = 3}, 3) == "训");
  INFO("a letter keeps its accent");
  CHECK(format_progress({.description = "e\u0301a", .total = 3}, 1) == "e\u0301");
}

TEST_CASE("ProgressFormat: wide characters take two columns off the bar") {
  const ProgressState narrow{.description = "ab", .done = 1, .total = 2};
  const ProgressState wide{.description = "学", .done = 1, .total = 2};
  const std::string expected = format_progress(narrow, 60);
  CHECK(format_progress(wide, 60) == "学" + expected.substr(2));
}

TEST_CASE("ProgressFormat: control characters become spaces") {
  CHECK(format_progress({.description = "a\x1b[2J\n", .unit = "\r", .postfix = "\xFF"}, 0) ==
        "a [2J : 0  [00:00, ? /s, \xEF\xBF\xBD]");
  INFO("terminals take U+009B for the beginning of a command");
  CHECK(format_progress({.description = "\u009B2J\u2028"}, 0) == " 2J : 0it [00:00, ?it/s]");
}

TEST_CASE("ProgressFormat: extreme numbers stay numbers") {
  CHECK(format_progress({.total = 0}, 0) == "100% 0/0 [00:00<?, ?it/s]");
  CHECK(format_interval(Seconds(-1)) == "00:00");
  CHECK(format_interval(Seconds(std::numeric_limits<double>::infinity())) == "277777:46:40");
  const double tiny = std::numeric_limits<double>::denorm_min();
  CHECK(format_progress({.total = std::numeric_limits<int64_t>::max(), .rate = tiny}, 100) != "");
}

TEST_CASE("ProgressFormat: short numbers have three digits") {
  CHECK(format_short(0.5) == "0.5");
  CHECK(format_short(0.123456) == "0.123");
  CHECK(format_short(1.25e-5) == "1.25e-5");
  CHECK(format_short(3) == "3");
  CHECK(format_short(1e20) == "1e+20");
  CHECK(format_short(1e-100 / 3) == "3.33e-101");
  CHECK(format_short(std::numeric_limits<double>::quiet_NaN()) == "nan");
}

}  // namespace
}  // namespace ddp
