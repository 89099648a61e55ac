#include "launcher/output/prefix_template.h"

#include <string>

#include "launcher/system/launch_error.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

std::string expand(std::string_view text) {
  return PrefixTemplate(text).expand({.rank = 12, .local_rank = 4}, "node7", "stderr", "11:05:19");
}

TEST_CASE("PrefixTemplate: the default is the rank") {
  CHECK(expand(PrefixTemplate::kDefault) == "[12] ");
}

TEST_CASE("PrefixTemplate: every field is filled in") {
  CHECK(expand("{host}:{rank}.{local_rank} {stream} {time}|") == "node7:12.4 stderr 11:05:19|");
  CHECK(PrefixTemplate("{time}").has_time());
  CHECK_FALSE(PrefixTemplate("{rank}").has_time());
}

TEST_CASE("PrefixTemplate: Horovod's form has a name") {
  CHECK(expand("horovod") == "[1,12]<stderr>:");
}

TEST_CASE("PrefixTemplate: other braces are text") {
  CHECK(expand("{") == "{");
  CHECK(expand("}{rank}{") == "}12{");
  CHECK(expand("") == "");
}

TEST_CASE("PrefixTemplate: torchrun's templates are filled in") {
  const auto expanded = [](std::string_view text) {
    return PrefixTemplate::of_torchrun(text, "tr{rank}").expand({.rank = 12, .local_rank = 4}, "node7", "stderr", "");
  };
  CHECK(expanded("[${role_name}${local_rank}]:") == "[tr{rank}4]:");
  CHECK(expanded("$rank,$local_rank;$ranks $$ ${other} ${rank $") == "12,4;$ranks $ ${other} ${rank $");
  CHECK(expanded("{rank} plain") == "{rank} plain");
  CHECK(expanded("") == "");
}

TEST_CASE("PrefixTemplate: unknown fields are refused") {
  CHECK_THROWS_AS(PrefixTemplate("{rnak}"), LaunchError);
}

}  // namespace
}  // namespace launcher
