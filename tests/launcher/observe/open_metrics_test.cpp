#include <nlohmann/json.hpp>

#include <string>

#include "launcher/observe/watch/status_document.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("OpenMetrics: what is not finite has the format's words, and names are UTF-8") {
  nlohmann::ordered_json rank{{"rank", 0}, {"host", "node"}, {"steps_per_second", nullptr}};
  rank["values"] = {{"loss", "nan"}, {"above", "inf"}, {"below", "-inf"}, {"known", 2.5}, {"a\xff\"b\n\u00e4", 1}};
  const std::string text = open_metrics({{"job", "cifar"}, {"ranks", {rank}}});
  const std::string labels = "ddprun_value{job=\"cifar\",rank=\"0\",host=\"node\",name=";
  CHECK_THAT(text, ContainsSubstring(labels + "\"loss\"} NaN\n"));
  CHECK_THAT(text, ContainsSubstring(labels + "\"above\"} +Inf\n"));
  CHECK_THAT(text, ContainsSubstring(labels + "\"below\"} -Inf\n"));
  CHECK_THAT(text, ContainsSubstring(labels + "\"known\"} 2.5\n"));
  CHECK_THAT(text, ContainsSubstring(labels + "\"a\uFFFD\\\"b\\n\u00e4\"} 1\n"));
  CHECK_THAT(text, !ContainsSubstring("ddprun_steps_per_second{"));  // not known yet
}

}  // namespace
}  // namespace launcher
