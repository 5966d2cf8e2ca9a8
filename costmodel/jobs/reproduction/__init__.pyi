from .collect import collect_corpus as collect_corpus
from .report import CorpusResult as CorpusResult
from .report import summary_document as summary_document
from .report import write_report as write_report
