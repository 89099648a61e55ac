// The text of gradient buckets in a checkpoint.
#include "comm/core/bucket_text.h"

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using Catch::Matchers::Message;

TEST_CASE("BucketText: buckets come back") {
  const BucketIndices buckets{{4, 3}, {2}, {0, 1}};
  CHECK(to_text(buckets) == "gradient buckets\n4 3\n2\n0 1\n");
  CHECK(buckets_from(to_text(buckets), 5) == buckets);
  CHECK(buckets_from(to_text(BucketIndices{}), 5).empty());
}

TEST_CASE("BucketText: what is no text of buckets is refused with the reason") {
  const auto reads = [](const std::string& text) { return [=] { static_cast<void>(buckets_from(text, 3)); }; };
  const auto refuses = [&](const std::string& text, const std::string& why) {
    INFO(text);
    CHECK_THROWS_MATCHES(reads(text)(), std::invalid_argument, Message(why));
  };
  refuses("", "invalid gradient buckets: it begins with '', expected 'gradient buckets'");
  refuses("buckets", "invalid gradient buckets: it begins with 'buckets', expected 'gradient buckets'");
  refuses("gradient buckets\r\n0 1 2\r\n",
          "invalid gradient buckets: it begins with 'gradient buckets ', expected 'gradient buckets'");
  refuses("gradient buckets\n0 \x1B[2J\n", "invalid gradient buckets: '0  [2J' is not a list of parameter numbers");
  refuses("gradient buckets\n0 x\n", "invalid gradient buckets: '0 x' is not a list of parameter numbers");
  refuses("gradient buckets\n0 1 2\n\n", "invalid gradient buckets: a line is empty");
  refuses("gradient buckets\n0 1 99999999999999999999\n",
          "invalid gradient buckets: '0 1 99999999999999999999' is not a list of parameter numbers");
  refuses("gradient buckets\n0 -1 2\n", "invalid gradient buckets: '0 -1 2' is not a list of parameter numbers");
  refuses("gradient buckets\n0 3 1\n", "the gradient buckets name parameter 3, but the model has only 3");
  refuses("gradient buckets\n0 1\n1 2\n", "the gradient buckets name parameter 1 twice");
  refuses("gradient buckets\n0 2\n", "the gradient buckets have 2 parameters, but the model has 3");
}

}  // namespace
}  // namespace ddp::detail
