#include "checkpoint/pt/script_classes.h"

#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp::pt {
namespace {

using test::ElementsAre;

constexpr const char* kSource =
    "class Net(Module):\n  __parameters__ = [\"weight\", \"bias\", ]\n  __buffers__ = [\"mean\", ]\n  table : Tensor\n"
    "  def forward(self, x: Tensor) -> Tensor:\n    return x\n"
    "class Empty(Module):\n  __parameters__ = []\n  __buffers__ = []\n"
    "class Old(Module):\n  __parameters__ = [\"weight\"]\n  weight : Tensor\n"
    "class Cut(Module):\n  __parameters__ = [\"weight\", \"bi\n  __buffers__ = [\"";

TEST_CASE("ScriptClasses: a class has its parameters and buffers, under the name of its file") {
  ScriptClasses classes;
  add_script_classes("code/__torch__/torch/nn/modules/linear/___torch_mangle_0.py", kSource, classes);
  const std::string module = "__torch__.torch.nn.modules.linear.___torch_mangle_0.";
  REQUIRE(classes.contains(module + "Net"));
  CHECK_THAT(classes.at(module + "Net"), ElementsAre("bias", "mean", "weight"));
  CHECK(classes.at(module + "Empty").empty());
  CHECK_THAT(classes.at(module + "Cut"), ElementsAre("weight"));
  UNSCOPED_INFO("of a class without a list of buffers nothing is known");
  CHECK_FALSE(classes.contains(module + "Old"));
  CHECK(classes.size() == 3);
}

TEST_CASE("ScriptClasses: entries that are not source code are skipped") {
  ScriptClasses classes;
  for (const auto* name : {"", "code/", "code/.py", "data/a.py", "code/a.txt", "a.py"})
    add_script_classes(name, kSource, classes);
  CHECK(classes.empty());
  add_script_classes("code/__torch__.py", "", classes);
  CHECK(classes.empty());
  add_script_classes("code/__torch__.py", "class A(Module):\n  __parameters__ = []\n  __buffers__ = []", classes);
  CHECK(classes.contains("__torch__.A"));
}

}  // namespace
}  // namespace ddp::pt
