// Names of functions as stacks show them, however long their symbols are.
#include "base/symbol_name.h"

#include <string>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

// A symbol that no demangler takes for its length: function `train` of a namespace, with so many template arguments.
std::string long_symbol(const std::string& arguments = "") {
  std::string symbol = "_ZN3net5trainI";
  for (int i = 0; i < 200; ++i) symbol += "N4data5batchIfEE";
  return symbol + arguments + "EEvRT_";
}

TEST_CASE("SymbolName: a C++ symbol is readable, and what is none stays as it is") {
  CHECK(symbol_name("_ZN3net5trainEi", 160) == "net::train(int)");
  CHECK(symbol_name("main", 160) == "main");
  CHECK(symbol_name("", 160) == "");
  CHECK(symbol_name("_Z", 160) == "_Z");
  CHECK(symbol_name("_ZN3net", 160) == "_ZN3net");
}

TEST_CASE("SymbolName: a version behind the symbol is left out") {
  CHECK(symbol_name("_ZSt9terminatev@@GLIBCXX_3.4", 160) == "std::terminate()");
  CHECK(symbol_name("qsort@GLIBC_2.2.5", 160) == "qsort");
}

TEST_CASE("SymbolName: clones of a function say so") {
  CHECK(symbol_name("_ZN3net5trainEi.isra.0", 160) == "net::train(int) [clone .isra.0]");
}

TEST_CASE("SymbolName: long names lose template arguments before parameters, and are cut off last") {
  CHECK(shortened_name("void at::add<float, std::vector<int> >(at::Tensor const&)", 40) ==
        "void at::add<...>(at::Tensor const&)");
  CHECK(shortened_name("void at::add<float>(at::Tensor const&, at::Tensor const&)", 30) == "void at::add<...>(...)");
  CHECK(shortened_name("(anonymous namespace)::f(int, int, int, int, int)", 32) == "(anonymous namespace)::f(...)");
  CHECK(shortened_name("abcdefghijklmnop", 10) == "abcdefg...");
  CHECK(shortened_name("short", 10) == "short");
}

TEST_CASE("SymbolName: operators with angle brackets are not template arguments") {
  CHECK(shortened_name("std::operator<< <char>(std::ostream&, char const*)", 40) == "std::operator<< <...>(...)");
  CHECK(shortened_name("net::Pointer<long>::operator->(int, int, int, int)", 40) ==
        "net::Pointer<...>::operator->(...)");
}

TEST_CASE("SymbolName: a symbol too long for the demangler has its name all the same") {
  REQUIRE(long_symbol().size() > 1024);
  CHECK(symbol_name(long_symbol(), 160) == "net::train<...>(...)");
  CHECK(symbol_name(long_symbol("Lb1ELi3E"), 160) == "net::train<...>(...)");
  CHECK(symbol_name(long_symbol("XaaLb1ELb0EE"), 160) == "net::train<...>(...)");
  CHECK(symbol_name(long_symbol("XadL_ZN3net4stepEvEE"), 160) == "net::train<...>(...)");
  CHECK(symbol_name(long_symbol("JifEDpT_S0_St6vectorIiSaIiEE"), 160) == "net::train<...>(...)");
  CHECK(symbol_name(long_symbol("PFvRKN2at6TensorEE"), 160) == "net::train<...>(...)");
}

TEST_CASE("SymbolOutline: kinds of names") {
  CHECK(outline_of_symbol("_Z5trainv") == "train(...)");
  CHECK(outline_of_symbol("_ZNSt6vectorIiSaIiEE9push_backERKi") == "std::vector<...>::push_back(...)");
  CHECK(outline_of_symbol("_ZNK3net5Batch4sizeEv") == "net::Batch::size(...)");
  CHECK(outline_of_symbol("_ZN3net5BatchC2Ev") == "net::Batch::Batch(...)");
  CHECK(outline_of_symbol("_ZN3net5BatchD0Ev") == "net::Batch::~Batch(...)");
  CHECK(outline_of_symbol("_ZN12_GLOBAL__N_14stepEv") == "(anonymous namespace)::step(...)");
  CHECK(outline_of_symbol("_ZZN3net4stepEvENKUlvE_clEv") == "net::step(...)::{lambda}::operator(...)");
  CHECK(outline_of_symbol("_ZN3netplERKNS_5BatchES2_") == "net::operator(...)");
  CHECK(outline_of_symbol("_ZNSt8functionIFvvEE4callB5cxx11Ev") == "std::function<...>::call(...)");
}

TEST_CASE("SymbolOutline: what is damaged names nothing, and takes no time") {
  const std::string whole = long_symbol();
  for (std::size_t length = 0; length < whole.size() - 8; length += 7) {
    CHECK(outline_of_symbol(whole.substr(0, length)).empty());
  }
  CHECK(outline_of_symbol("_Z99999999999999999999999x").empty());
  CHECK(outline_of_symbol("_ZN" + std::string(100'000, 'N')).empty());
  CHECK(outline_of_symbol("_Z" + std::string(100'000, 'Z')).empty());
  CHECK(outline_of_symbol("_ZN1aI" + std::string(100'000, 'I')).empty());
}

}  // namespace
}  // namespace ddp::detail
