#include "launcher/output/prefix_template.h"

#include <gtest/gtest.h>

#include "launcher/system/launch_error.h"

namespace launcher {
namespace {

std::string expand(std::string_view text) {
  return PrefixTemplate(text).expand({.rank = 12, .local_rank = 4}, "node7", "stderr", "11:05:19");
}

TEST(PrefixTemplate, TheDefault) {
  EXPECT_EQ(expand(PrefixTemplate::kDefault), "[12] ");
}

TEST(PrefixTemplate, EveryField) {
  EXPECT_EQ(expand("{host}:{rank}.{local_rank} {stream} {time}|"), "node7:12.4 stderr 11:05:19|");
  EXPECT_TRUE(PrefixTemplate("{time}").has_time());
  EXPECT_FALSE(PrefixTemplate("{rank}").has_time());
}

TEST(PrefixTemplate, HorovodsForm) {
  EXPECT_EQ(expand("horovod"), "[1,12]<stderr>:");
}

TEST(PrefixTemplate, OtherBracesAreText) {
  EXPECT_EQ(expand("{"), "{");
  EXPECT_EQ(expand("}{rank}{"), "}12{");
  EXPECT_EQ(expand(""), "");
}

TEST(PrefixTemplate, TorchrunsVariable) {
  const auto expanded = [](std::string_view text) {
    return PrefixTemplate::of_torchrun(text, "tr{rank}").expand({.rank = 12, .local_rank = 4}, "node7", "stderr", "");
  };
  EXPECT_EQ(expanded("[${role_name}${local_rank}]:"), "[tr{rank}4]:");
  EXPECT_EQ(expanded("$rank,$local_rank;$ranks $$ ${other} ${rank $"), "12,4;$ranks $ ${other} ${rank $");
  EXPECT_EQ(expanded("{rank} plain"), "{rank} plain");
  EXPECT_EQ(expanded(""), "");
}

TEST(PrefixTemplate, UnknownFieldsAreRefused) {
  EXPECT_THROW(PrefixTemplate("{rnak}"), LaunchError);
}

}  // namespace
}  // namespace launcher
