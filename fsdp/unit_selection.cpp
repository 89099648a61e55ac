#include "fsdp/unit_selection.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/joined.h"

namespace ddp::fsdp {
namespace {

using Module = torch::nn::Module;

// The modules of a model in the order of named_modules(), each once.
struct Tree {
  struct Node {
    const Module* module;
    std::string name;
    int parent;  // the node that it was found in
  };
  std::vector<Node> nodes;
  std::unordered_map<const Module*, int> places;

  explicit Tree(const Module& root) { add(root, "", -1); }

  void add(const Module& module, const std::string& name, int parent) {
    const auto place = static_cast<int>(nodes.size());
    if (!places.emplace(&module, place).second) return;
    nodes.push_back({&module, name, parent});
    for (const auto& child : module.named_children()) {
      add(*child.value(), name.empty() ? child.key() : name + "." + child.key(), place);
    }
  }
};

class Selection {
 public:
  Selection(const Module& model, const std::vector<UnitSelector>& selectors, const std::vector<at::Tensor>& ignored,
            std::string who)
      : tree_(model), unit_of_node_(tree_.nodes.size(), kNone), who_(std::move(who)) {
    for (const at::Tensor& tensor : ignored) ignore(model, tensor);
    for (const UnitSelector& selector : selectors) add(selector);
    number_units();
    name_and_place_units();
    for (size_t unit = units_.size(); unit-- > 0;) collect(static_cast<int>(unit));
  }

  std::vector<SelectedUnit> take() { return std::move(units_); }

 private:
  static constexpr int kNone = -1;

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument(who_ + ": fully_shard(): " + why);
  }

  void ignore(const Module& model, const at::Tensor& tensor) {
    const auto parameters = model.parameters();
    const bool is_known = std::ranges::any_of(parameters, [&](const at::Tensor& one) { return one.is_same(tensor); });
    if (!is_known) refuse("a tensor of ignored_params is not a parameter of the model");
    ignored_.insert(tensor.unsafeGetTensorImpl());
  }

  void add(const UnitSelector& selector) {
    std::vector<int> selected;
    for (const std::string& name : selector.names()) selected.push_back(node_named(name));
    for (size_t node = 1; node < tree_.nodes.size(); ++node) {
      if (selector.matches(*tree_.nodes[node].module)) selected.push_back(static_cast<int>(node));
    }
    if (selected.empty()) refuse("a selector of units selects no module of the model");
    if (selector.is_one_unit()) return add_unit(selected);
    for (const int node : selected) add_unit({node});
  }

  int node_named(const std::string& name) const {
    const auto node = std::ranges::find_if(tree_.nodes, [&](const auto& one) { return one.name == name; });
    if (node == tree_.nodes.end() || name.empty()) refuse("the model has no module '" + name + "' to make a unit of");
    return static_cast<int>(node - tree_.nodes.begin());
  }

  void add_unit(const std::vector<int>& nodes) {
    for (const int node : nodes) {
      int& unit = unit_of_node_[static_cast<size_t>(node)];
      if (unit != kNone) refuse("the module '" + tree_.nodes[static_cast<size_t>(node)].name + "' is selected twice");
      unit = static_cast<int>(members_.size());
    }
    members_.push_back(nodes);
  }

  // Renumbers the units from the order of the selectors to the order of the modules; the root comes first.
  void number_units() {
    std::vector<std::vector<int>> ordered{{0}};
    std::set<int> known;
    for (size_t node = 1; node < tree_.nodes.size(); ++node) {
      const int unit = unit_of_node_[node];
      if (unit != kNone && known.insert(unit).second) ordered.push_back(members_[static_cast<size_t>(unit)]);
    }
    members_ = std::move(ordered);
    std::ranges::fill(unit_of_node_, kNone);
    for (size_t unit = 0; unit < members_.size(); ++unit) {
      for (const int node : members_[unit]) unit_of_node_[static_cast<size_t>(node)] = static_cast<int>(unit);
    }
  }

  // The innermost unit that contains the module, apart from a unit that the module itself is.
  int unit_around(int node) const {
    for (int outer = tree_.nodes[static_cast<size_t>(node)].parent; outer >= 0;
         outer = tree_.nodes[static_cast<size_t>(outer)].parent) {
      if (unit_of_node_[static_cast<size_t>(outer)] != kNone) return unit_of_node_[static_cast<size_t>(outer)];
    }
    return kNone;
  }

  void name_and_place_units() {
    for (size_t unit = 0; unit < members_.size(); ++unit) {
      std::vector<std::string> names;
      for (const int node : members_[unit]) names.push_back(tree_.nodes[static_cast<size_t>(node)].name);
      const int parent = unit_around(members_[unit].front());
      for (const int node : members_[unit]) {
        if (unit_around(node) == parent && parent != static_cast<int>(unit)) continue;
        refuse("the modules " + detail::joined(names) + " cannot be one unit: they are not inside the same outer unit");
      }
      units_.push_back(
          {.name = unit == 0 ? "the root" : detail::joined(names), .parent = parent, .modules = std::move(names)});
    }
  }

  void collect(int unit) {
    for (const int node : members_[static_cast<size_t>(unit)]) collect_below(unit, node);
  }

  void collect_below(int unit, int node) {
    if (!visited_.insert(node).second) return;
    const Tree::Node& here = tree_.nodes[static_cast<size_t>(node)];
    for (const auto& child : here.module->named_children()) {
      const int inner = tree_.places.at(child.value().get());
      if (unit_of_node_[static_cast<size_t>(inner)] == kNone) collect_below(unit, inner);
    }
    for (const auto& parameter : here.module->named_parameters(/*recurse=*/false)) {
      take(unit, here.name.empty() ? parameter.key() : here.name + "." + parameter.key(), parameter.value());
    }
  }

  void take(int unit, const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || ignored_.contains(tensor.unsafeGetTensorImpl())) return;
    const auto [owner, is_new] = owners_.emplace(tensor.unsafeGetTensorImpl(), std::pair(unit, name));
    SelectedUnit& one = units_[static_cast<size_t>(unit)];
    if (!is_new) {
      if (owner->second.first == unit) return;
      refuse("the parameter " + name + " of unit " + one.name + " is also " + owner->second.second + " of unit " +
             units_[static_cast<size_t>(owner->second.first)].name +
             ". Put the modules that share it into one unit, by together().");
    }
    check(name, tensor);
    one.parameters.push_back({.name = name, .tensor = tensor});
  }

  void check(const std::string& name, const at::Tensor& tensor) const {
    if (parameter_storage_of(*tensor.unsafeGetTensorImpl()) != nullptr) {
      refuse("the parameter " + name + " is sharded already: call fully_shard() only once for each model");
    }
    if (tensor.layout() != at::kStrided) refuse("the parameter " + name + " is not dense");
    if (tensor.dim() == 0) refuse("the parameter " + name + " has no dimension to divide: give it the shape [1]");
    if (!tensor.is_contiguous()) {
      refuse("the parameter " + name + " is not contiguous: replace its data by data.contiguous()");
    }
  }

  Tree tree_;
  std::vector<int> unit_of_node_;
  std::string who_;
  std::vector<std::vector<int>> members_;  // of each unit, its modules
  std::vector<SelectedUnit> units_;
  std::unordered_set<int> visited_;
  std::unordered_set<const c10::TensorImpl*> ignored_;
  std::unordered_map<const c10::TensorImpl*, std::pair<int, std::string>> owners_;
};

}  // namespace

std::vector<SelectedUnit> select_units(const torch::nn::Module& model, const std::vector<UnitSelector>& selectors,
                                       const std::vector<at::Tensor>& ignored, const std::string& who) {
  return Selection(model, selectors, ignored, who).take();
}

UnitSchedule schedule_of(const std::vector<SelectedUnit>& units) {
  std::vector<int> parents;
  std::vector<bool> is_empty;
  for (const SelectedUnit& unit : units) {
    parents.push_back(unit.parent);
    is_empty.push_back(unit.parameters.empty());
  }
  return {std::move(parents), std::move(is_empty)};
}

}  // namespace ddp::fsdp
