from .run import run_service as run_service
from .tokens import SCOPES as SCOPES
from .tokens import Tokens as Tokens
from .tokens import add_token as add_token
