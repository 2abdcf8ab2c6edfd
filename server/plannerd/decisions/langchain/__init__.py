"""The provider `langchain`: any `langchain_core.decisions.BaseDecisionModel`. Needs `plannerd[langchain]`."""

from plannerd.decisions.langchain.loading import load_model
from plannerd.decisions.langchain.model import LangChainModel, LangChainOptions

__all__ = ["LangChainModel", "LangChainOptions", "load_model"]
